/* What the public calls share: <name>.c checks the arguments of one, and hands it to the group's engine. */
#ifndef TT_COMM_COLLECTIVE_COLLECTIVE_H
#define TT_COMM_COLLECTIVE_COLLECTIVE_H

#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"

/* `name` points to the caller's options, or, if its version of the struct is another, to a copy in this version. */
#define TT__CALL_ARGS(type, name)                                     \
    type name##_copy;                                                 \
    if (__builtin_expect(!args || size != offsetof(type, tt_end), 0)) \
        TT__ARGS_COPY(name##_copy, args, size);                       \
    const type *name = args && size == offsetof(type, tt_end) ? args : &name##_copy

/* What a call must look like before anything is sent. `root` 0 and TT_SUM where there is none. */
tt_status tt__check_call(tt_group *group, const char *name, const void *buf, size_t count, tt_dtype dtype,
                         tt_reduce_op op, int root);

/* The same for a list of counts, one of each rank: it is there, and their sum fits memory. `offsets`: NULL, or one of
 * each rank, too. */
tt_status tt__check_counts(tt_group *group, const char *name, const void *buf, const size_t *counts,
                           const size_t *offsets, tt_dtype dtype);

/* Every list of offsets that the caller left out, one after the other, in room of the group's: `which` 0 or 1. NULL: no
 * memory. */
const size_t *tt__offsets_of(tt_group *group, int which, const size_t *counts);

/* Hand a checked call to the group's engine. */
static inline tt_status tt__submit(tt_group *group, const tt_call *call, tt_work **work) {
    return group->engine->submit(group, call, work);
}

/* Check and hand over a call of even blocks: gather, scatter, all_gather or all_to_all. Its timeout is still the
 * caller's option. *work is NULL after an error. */
tt_status tt__submit_blocks(tt_group *group, tt_call *call, tt_work **work);

static inline int64_t tt__timeout_of(const tt_group *group, int64_t timeout_ms) {
    return timeout_ms > 0 ? timeout_ms : group->timeout_ms;
}

tt_call tt__all_reduce_call(const tt_all_reduce_args *args);

#endif
