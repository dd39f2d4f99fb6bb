/* The public calls of a group: arguments are checked, a tt_call is filled, and the group's engine gets it
 * (backend/engine.h). */
#ifndef TT_COMM_CALL_H
#define TT_COMM_CALL_H

#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"

/* `name` points to the caller's options, or, if its version of the struct is another, to a copy in this version. */
#define TT__CALL_ARGS(type, name)                                     \
    type name##_copy;                                                 \
    if (__builtin_expect(!args || size != offsetof(type, tt_end), 0)) \
        TT__ARGS_COPY(name##_copy, args, size);                       \
    const type *name = args && size == offsetof(type, tt_end) ? args : &name##_copy

/* The call that the args struct `a` asks for. Its timeout is still the caller's option: tt__submit_checked(). */
#define TT__CALL_OF(operation, a, ...)                                                                                 \
    {                                                                                                                  \
        .op = (operation), .timeout_ms = (a)->timeout_ms, .file = (a)->file, .line = (a)->line, .device = (a)->device, \
        .device_index = (a)->device_index, .stream = (a)->stream, __VA_ARGS__                                          \
    }

/* The group can be called; *work, if there is one to give, is NULL so far. */
tt_status tt__check_group(tt_group *group, tt_work **work);

/* What a call must look like before anything is sent: types, root, count, and `buf`, which has room for the count. */
tt_status tt__check_call(tt_group *group, const tt_call *call, const void *buf);

/* A list of counts, one of each rank, and of offsets, which may be NULL. `of` names them in errors: "", "send " or
 * "receive ". */
typedef struct tt__lists_of {
    const char *of;
    const int64_t *counts, *offsets;
} tt__lists_of;

/* The same for lists: the counts are there, their sum fits memory, and so does what lies at the offsets. */
tt_status tt__check_lists(tt_group *group, const tt_call *call, const void *buf, const tt__lists_of *lists);

/* Where the call's buffers lie is said in a way that makes sense, and the group's engine takes such memory. */
tt_status tt__check_device(const tt_group *group, const tt_call *call);

/* Give a checked call its timeout, and the group's engine the call. */
tt_status tt__submit_checked(tt_group *group, tt_call *call, tt_work **work);

#endif
