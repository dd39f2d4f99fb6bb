/* The step of a sharded optimizer: every rank updates its slices, and takes the others'. */
#include "parallel/zero/zero.h"

#include <stdlib.h>

#include "base/error.h"

/* What errors of collectives name, as they have no line of the program's. */
static const char spread_site[] = "the gathering of updated parameters";
static const char join_site[] = "adding up over slices";

static tt_status check_whole_place(const tt__zero *z, const tt__zero_param *p, const char *who) {
    const tt__zero_bucket *b = &z->buckets[p->bucket];
    if (p->whole->data == (char *)b->values + (size_t)p->offset * tt_dtype_size(b->dtype) &&
        p->whole->dtype == b->dtype && p->whole->contiguous)
        return TT_OK;
    return tt__fail(
        TT_ERR_STATE,
        "%s: parameter \"%s\" is %s now and lies elsewhere than when it was sliced; convert a module before "
        "tt_zero_optimizer()",
        who, p->name, TT__DESCRIBE(p->whole));
}

tt_status tt__zero_begin(void *user, const char *who) {
    tt__zero *z = user;
    if (!z->ddp)
        return tt__fail(TT_ERR_STATE,
                        "%s: the wrapper whose parameters are sliced was freed, or was given another group; make "
                        "wrapper and optimizer anew",
                        who);
    if (z->stage > 1 && !z->hooked)
        return tt__fail(TT_ERR_STATE,
                        "%s: another communication hook took the place of stage 2's; make the optimizer anew, or with "
                        ".stage = 1, beside which there may be one",
                        who);
    for (size_t i = 0; i < z->count; i++)
        TT__TRY(check_whole_place(z, &z->params[i], who));
    tt__zero_forget_state(z);
    return TT_OK;
}

/* Wait for all that was begun, and forget it. */
static tt_status end_gathers(tt_work **works, size_t n) {
    tt_status first = TT_OK;
    for (size_t i = 0; i < n; i++) {
        tt_status status = works[i] ? tt_work_wait(works[i]) : TT_OK;
        first = first ? first : status;
        tt_work_free(works[i]);
    }
    return first;
}

tt_status tt__zero_end(void *user, const char *who) {
    tt__zero *z = user;
    tt_work **works = calloc(z->bucket_count, sizeof(tt_work *));
    if (!works)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu buckets", who, z->bucket_count);
    tt_status status = TT_OK;
    size_t begun = 0;
    for (; begun < z->bucket_count && !status; begun++) {
        const tt__zero_bucket *b = &z->buckets[begun];
        const char *own = (char *)b->values + (size_t)(b->part * z->rank) * tt_dtype_size(b->dtype);
        status = tt_all_gather_with(TT_ARGS(tt_all_gather_args, z->group, own, b->values, b->part, b->dtype,
                                            .work = &works[begun], .file = spread_site));
    }
    tt_status ended = end_gathers(works, begun);
    free(works);
    for (size_t i = 0; i < z->count; i++)
        tt__storage_touch(z->params[i].whole->storage);
    return status ? status : ended;
}

tt_status tt__zero_join(void *user, double *values, int64_t n, bool largest) {
    const tt__zero *z = user;
    return tt_all_reduce_with(
        TT_ARGS(tt_all_reduce_args, z->group, values, n, TT_F64, largest ? TT_MAX : TT_SUM, .file = join_site));
}
