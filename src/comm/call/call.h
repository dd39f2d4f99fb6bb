/* The public calls of a group: check arguments, fill a tt_call, and give it to the group's engine
 * (group.h). */
#ifndef TT_COMM_CALL_H
#define TT_COMM_CALL_H

#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"

/* Declare `name`, which points to the caller's options, or to a copy if the caller was built for another version of the
 * struct. */
#define TT__CALL_ARGS(type, name)                                     \
    type name##_copy;                                                 \
    if (__builtin_expect(!args || size != offsetof(type, tt_end), 0)) \
        TT__ARGS_COPY(name##_copy, args, size);                       \
    const type *name = args && size == offsetof(type, tt_end) ? args : &name##_copy

/* The tt_call that the args struct `a` asks for. tt__submit_checked() replaces a timeout of 0 by the group's. */
#define TT__CALL_OF(operation, a, ...)                                                                                 \
    {                                                                                                                  \
        .op = (operation), .timeout_ms = (a)->timeout_ms, .file = (a)->file, .line = (a)->line, .device = (a)->device, \
        .device_index = (a)->device_index, .stream = (a)->stream, __VA_ARGS__                                          \
    }

/* Check that the group can be called. Sets *work, if wanted, to NULL. */
tt_status tt__check_group(tt_group *group, tt_work **work);

/* Check types, root and count of a call, and that `buf` has room for the count. */
tt_status tt__check_call(tt_group *group, const tt_call *call, const void *buf);

/* A list of counts, one of each rank, and of offsets, which may be NULL. `of` names them in errors: "", "send " or
 * "receive ". */
typedef struct tt__lists_of {
    const char *of;
    const int64_t *counts, *offsets;
} tt__lists_of;

/* Check a call's lists: there are counts, and neither their sum nor the offsets exceed memory. */
tt_status tt__check_lists(tt_group *group, const tt_call *call, const void *buf, const tt__lists_of *lists);

/* Set the timeout of a checked call, and give it to the group's engine. */
tt_status tt__submit_checked(tt_group *group, tt_call *call, tt_work **work);

#endif
