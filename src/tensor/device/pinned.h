/* Pinned memory of the host: a device copies from it and to it while the host goes on. Blocks are mappings of their
 * own, which are kept for later use, because pinning takes longer than a copy does. */
#ifndef TT_TENSOR_PINNED_H
#define TT_TENSOR_PINNED_H

#include "tensor/device/device.h"

typedef struct tt__pinned tt__pinned;

/* Take a block of at least `bytes` that no copy uses, pinned for `device`. NULL: there is none, because the device's
 * work is done when its calls return, or because it can't be pinned; the first time the log says why. No error is
 * recorded: memory that isn't pinned serves as well, more slowly. Thread-safe, as all that follow. */
tt__pinned *tt__pinned_take(const tt_device *device, size_t bytes);

/* Give a block back, also while copies from it are under way: it is taken again when they have ended. At most
 * TT__PINNED_KEPT bytes are kept. NULL is allowed. */
enum { TT__PINNED_KEPT = 256 << 20 };
void tt__pinned_give(tt__pinned *block);

void *tt__pinned_data(const tt__pinned *block);
const tt_device *tt__pinned_device(const tt__pinned *block);

/* Begin to copy from inside the block to its device, between earlier and later work. */
tt_status tt__pinned_copy(tt__pinned *block, void *to, const void *from, size_t bytes);

/* Have all copies from it ended? / Wait for that. */
bool tt__pinned_is_read(tt__pinned *block);
tt_status tt__pinned_wait(tt__pinned *block);

/* Is this a forked child of the process that pinned it? Its memory is not there. */
bool tt__pinned_is_elsewhere(const tt__pinned *block);

/* Unpin and free what is kept for a device. */
void tt__pinned_trim(const tt_device *device);

#endif
