/* A device for tests, "far": memory that plain pointers don't reach, and kernels for what the training of an MLP needs.
 *
 * Its memory is one memfd that is mapped twice. Where tensors point nothing may be read or written: a pointer that is
 * followed there ends the process. The device's kernels and copies use the second mapping. It computes in f32 (fill,
 * copy, matmul, sum, relu, cross entropy, SGD) and looks at i64 targets; it has no other kernel and no fallback. */
#ifndef TESTS_SUPPORT_FAR_DEVICE_H
#define TESTS_SUPPORT_FAR_DEVICE_H

#include "tensor/device/device.h"

/* The device, registered at the first call. NULL and an error: there is no memory for it. A forked child shares the
 * memory with its parent: fork before the first call. */
const tt_device *far_device(void);

/* Blocks that are allocated now. */
int far_device_live_blocks(void);

/* The nth allocation from now on fails, once; 1: the next. 0: none. */
void far_device_fail_nth(int n);

/* Where the device's kernels see what stands at `p`. */
void *far_device_near(const void *p);

/* By element type; far_kernels.c. */
extern const struct tt__kernels *const far_kernels[TT__DTYPES];

#endif
