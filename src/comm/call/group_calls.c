/* The calls that make groups and memory: checks of arguments. */
#include "comm/call/call.h"

#include "base/hash.h"
#include "comm/collective/collective.h"
#include "comm/in_callback.h"
#include "comm/rankset.h"

static tt_call new_group_call(const tt_group *group, tt_op op, int64_t timeout_ms, const char *file, int line) {
    return (tt_call){.op = op, .timeout_ms = tt__timeout_of(group, timeout_ms), .file = file, .line = line};
}

static tt_status check_new_call(tt_group *group, const char *name, const void *out, tt_work **work) {
    TT__TRY(tt__group_usable(group));
    if (!out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", name);
    if (work)
        return tt__fail(TT_ERR_INVALID, "%s: it can't be asynchronous, but .work is not NULL", name);
    return tt__may_wait(name);
}

/* Check that the list has ranks of the group, each at most once. The hash of the list is the call's tag. */
static tt_status check_ranks(const tt_group *group, const int *ranks, int64_t count, int *tag) {
    tt__rankset seen = {0};
    uint64_t hash = TT__FNV;
    if (!ranks || count < 1 || count > group->size)
        return tt__fail(TT_ERR_INVALID, "new_group: expected a list of 1 to %d ranks, got %s of %lld", group->size,
                        ranks ? "one" : "NULL", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size)
            return tt__fail(TT_ERR_INVALID, "new_group: expected ranks from 0 to %d, got %d", group->size - 1,
                            ranks[i]);
        if (tt__rankset_has(&seen, ranks[i]))
            return tt__fail(TT_ERR_INVALID, "new_group: rank %d appears twice", ranks[i]);
        tt__rankset_add(&seen, ranks[i]);
        hash = tt__fnv_number(hash, (uint64_t)ranks[i]);
    }
    *tag = (int)(uint32_t)(hash ^ hash >> 32);
    return TT_OK;
}

tt_status tt_new_group_with(const tt_new_group_args *args, size_t size) {
    TT__CALL_ARGS(tt_new_group_args, a);
    if (a->out)
        *a->out = NULL;
    TT__TRY(check_new_call(a->group, "new_group", a->out, a->work));
    tt_call call = new_group_call(a->group, TT_OP_NEW_GROUP, a->timeout_ms, a->file, a->line);
    TT__TRY(check_ranks(a->group, a->ranks, a->count, &call.tag));
    call.count = a->count;
    return a->group->engine->new_group(a->group, &call, a->ranks, (size_t)a->count, a->out);
}

tt_status tt_group_split_with(const tt_group_split_args *args, size_t size) {
    TT__CALL_ARGS(tt_group_split_args, a);
    if (a->out)
        *a->out = NULL;
    TT__TRY(check_new_call(a->group, "split", a->out, a->work));
    const tt_call call = new_group_call(a->group, TT_OP_SPLIT, a->timeout_ms, a->file, a->line);
    return a->group->engine->split(a->group, &call, a->color < 0 ? -1 : a->color, a->key, a->out);
}

tt_status tt_group_alloc_with(const tt_group_alloc_args *args, size_t size) {
    TT__CALL_ARGS(tt_group_alloc_args, a);
    if (a->out)
        *a->out = NULL;
    TT__TRY(check_new_call(a->group, "alloc", a->out, a->work));
    tt_call call = new_group_call(a->group, TT_OP_ALLOC, a->timeout_ms, a->file, a->line);
    call.count = (int64_t)a->bytes; /* which an engine takes for the bytes again */
    return a->group->engine->alloc(a->group, &call, a->out);
}

tt_status tt_group_free_with(const tt_group_free_args *args, size_t size) {
    TT__CALL_ARGS(tt_group_free_args, a);
    TT__TRY(check_new_call(a->group, "free", a, a->work));
    const tt_call call = new_group_call(a->group, TT_OP_FREE, a->timeout_ms, a->file, a->line);
    return a->group->engine->free(a->group, &call, a->ptr);
}
