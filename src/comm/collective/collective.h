/* From a checked call to its group's engine. */
#ifndef TT_COMM_COLLECTIVE_COLLECTIVE_H
#define TT_COMM_COLLECTIVE_COLLECTIVE_H

#include "base/error.h"
#include "comm/group.h"

static inline tt_status tt__submit(tt_group *group, const tt_call *call, tt_work **work) {
    return group->engine->submit(group, call, work);
}

/* Return a call's own timeout, or else its group's. */
static inline int64_t tt__timeout_of(const tt_group *group, int64_t timeout_ms) {
    return timeout_ms > 0 ? timeout_ms : group->timeout_ms;
}

static inline tt_call tt__all_reduce_call(const tt_all_reduce_args *a) {
    return (tt_call){.op = TT_OP_ALL_REDUCE,
                     .dtype = a->dtype,
                     .reduce_op = a->op,
                     .factor = a->factor,
                     .count = a->count,
                     .send = a->buf,
                     .recv = a->buf,
                     .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                     .file = a->file,
                     .line = a->line,
                     .device = a->device,
                     .device_index = a->device_index,
                     .stream = a->stream};
}

#endif
