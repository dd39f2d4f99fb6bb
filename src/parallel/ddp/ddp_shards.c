/* Virtual ranks: each rank does the passes of several shards in a step, one after the other, and gets the bits that as
 * many ranks as there are shards would get.
 *
 * A shard has gradients of its own, which go into the sums (reducer/shard_sums.c) as its pass makes them, so that the
 * last pass overlaps with the exchange. It has its own random numbers, and begins with the buffers of the step's
 * beginning. Passes that average nothing (tt_ddp_set_sync()) add to a shard's gradients before the pass that ends it.
 * After a step all ranks have shard 0's buffers. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/backward.h"
#include "base/error.h"
#include "nn/module.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/reducer.h"
#include "tensor/core/tensor.h"

struct tt__ddp_shards {
    int first, count;     /* of this rank */
    int now;              /* the current or next shard, from 0 */
    bool open;            /* the forward of `now` has begun */
    tt__shard_sums *sums; /* NULL: the reducer itself sums */
    int64_t buffers;      /* how many are kept in `before` and `of_first` */
    tt_tensor **before;   /* (buffers) as the step began */
    tt_tensor **of_first; /* (buffers) as the first shard left them */
};

/* ---- buffers */

static tt_status copy_from_buffers(const tt__ddp *d, tt_tensor **to) {
    const tt_named_tensors *list = tt_module_buffers(d->module);
    TT_NO_GRAD;
    for (int64_t i = 0; i < d->shards->buffers; i++)
        TT__TRY(tt_copy(to[i], list->tensors[i]));
    return TT_OK;
}

static tt_status copy_to_buffers(const tt__ddp *d, tt_tensor *const *from) {
    const tt_named_tensors *list = tt_module_buffers(d->module);
    TT_NO_GRAD;
    for (int64_t i = 0; i < d->shards->buffers; i++)
        TT__TRY(tt_copy(list->tensors[i], from[i]));
    return TT_OK;
}

static tt_status keep_buffers_like(tt_tensor **out, const tt_named_tensors *list) {
    TT_NO_GRAD;
    for (int64_t i = 0; i < list->count; i++) {
        tt_tensor *x = tt_clone(list->tensors[i]);
        if (!x || tt__tensor_adopt(x, "a wrapper"))
            return tt_last_status();
        out[i] = x;
    }
    return TT_OK;
}

static tt_status allocate_shard_buffers(const tt__ddp *d) {
    tt__ddp_shards *h = d->shards;
    const tt_named_tensors *list = tt_module_buffers(d->module);
    if (!list)
        return tt_last_status();
    if (h->count == 1 || !list->count)
        return TT_OK;
    h->before = calloc((size_t)list->count, sizeof(tt_tensor *));
    h->of_first = calloc((size_t)list->count, sizeof(tt_tensor *));
    if (!h->before || !h->of_first)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %" PRId64 " buffers", DDP_SITE, list->count);
    h->buffers = list->count;
    TT__TRY(keep_buffers_like(h->before, list));
    return keep_buffers_like(h->of_first, list);
}

static tt_status broadcast_buffers(const tt__ddp *d) {
    const tt_named_tensors *list = tt_module_buffers(d->module);
    return list ? tt__ddp_take(d->group, list, 0) : tt_last_status();
}

/* ---- a shard */

/* Refuse gradients of an earlier step, which would be added once for each shard. */
static tt_status check_no_gradients(const tt__ddp *d) {
    for (size_t i = 0; i < d->attached; i++)
        if (tt_grad(d->slots[i].parameter))
            return tt__fail(TT_ERR_STATE,
                            "%s: parameter \"%s\" has a gradient from the step before: with .virtual_ranks gradients "
                            "are set to none before each step, by tt_optimizer_zero_grad()",
                            DDP_SITE, d->reducer->params[i].name);
    return TT_OK;
}

tt_status tt__ddp_begin_shard(tt__ddp *d) {
    tt__ddp_shards *h = d->shards;
    if (h->open)
        return TT_OK;
    if (h->now == 0) {
        TT__TRY(check_no_gradients(d));
        TT__TRY(copy_from_buffers(d, h->before));
    } else {
        if (h->now == 1)
            TT__TRY(copy_from_buffers(d, h->of_first));
        TT__TRY(copy_to_buffers(d, h->before));
    }
    uint64_t number = (uint64_t)d->step * (uint64_t)d->virtual_ranks + (uint64_t)(h->first + h->now);
    if (d->shard_seed)
        tt_manual_seed(d->shard_seed + number * 0x9e3779b97f4a7c15u);
    h->open = true;
    return TT_OK;
}

bool tt__ddp_shard_is_last(const tt__ddp *d) { return !d->shards || d->shards->now + 1 == d->shards->count; }

tt_status tt__ddp_add_to_shards(const tt__ddp_slot *s) {
    const tt__ddp_shards *h = s->owner->shards;
    if (!s->owner->sums_shards)
        return TT_OK;
    TT__TRY(tt__ddp_bring_gradient(s));
    tt__shard_sums_add(h->sums, s->index, h->now);
    return TT_OK;
}

/* Parameters that the pass gave no gradient add the gradient of the shard's earlier passes, or zeros. *waits: some are
 * left to a second part of the pass. */
static tt_status add_unreached(const tt__ddp *d, bool *waits) {
    *waits = false;
    for (size_t i = 0; i < d->attached; i++) {
        tt__ddp_slot *s = &d->slots[i];
        if (s->ready)
            continue;
        if (tt__gradient_may_come(s->parameter)) {
            *waits = true;
            continue;
        }
        if (!tt_grad(s->parameter))
            memset(tt_reducer_gradient(d->reducer, (int64_t)i), 0, d->reducer->params[i].bytes);
        TT__TRY(tt__ddp_add_to_shards(s));
        s->ready = true;
    }
    return TT_OK;
}

static tt_status on_shard_end(void *user, tt_status pass) {
    tt__ddp *d = user;
    bool waits;
    tt_status status = pass ? pass : add_unreached(d, &waits);
    if (status) {
        tt__reducer_abandon(d->reducer, status);
        return status;
    }
    if (waits)
        return TT_OK;
    for (size_t i = 0; i < d->attached; i++) {
        tt_zero_grad(d->slots[i].parameter);
        d->slots[i].ready = false;
    }
    d->shards->now++;
    d->shards->open = false;
    return TT_OK;
}

tt_status tt__ddp_shard_gradient(tt__ddp_slot *s) {
    tt__ddp *d = s->owner;
    TT__TRY(tt__backward_on_end(on_shard_end, d));
    if (s->ready)
        return tt__fail(TT_ERR_STATE, "parameter \"%s\" got its gradient twice in a shard",
                        d->reducer->params[s->index].name);
    s->ready = true;
    return tt__ddp_add_to_shards(s);
}

tt_status tt__ddp_end_shards(tt__ddp *d) {
    tt__ddp_shards *h = d->shards;
    if (!h)
        return TT_OK;
    h->now = 0;
    h->open = false;
    d->step++;
    TT__TRY(copy_to_buffers(d, h->of_first));
    return broadcast_buffers(d);
}

/* ---- the wrapper */

/* Refuse a SyncBatchNorm, whose statistics are over real ranks. */
static tt_status check_no_sync_norm(const tt__ddp *d) {
    const tt_named_modules *tree = tt_module_named_modules(d->module);
    for (int64_t i = 0; tree && i < tree->count; i++)
        if (!strcmp(tt__module_class(tt__module_unwrapped(tree->modules[i]))->name, "SyncBatchNorm"))
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: \"%s\" is a SyncBatchNorm, whose statistics depend on the number of ranks, which "
                            ".virtual_ranks makes immaterial: use a BatchNorm",
                            DDP_SITE, tree->names[i]);
    return tree ? TT_OK : tt_last_status();
}

tt_status tt__ddp_check_shards(const tt__ddp *d, const tt_group *group) {
    int world = tt_get_world_size(group);
    if (d->virtual_ranks < 0 || d->virtual_ranks > TT__SHARDS_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: expected 0 to %d .virtual_ranks, got %d", DDP_SITE, TT__SHARDS_MAX,
                        d->virtual_ranks);
    if (d->virtual_ranks && d->virtual_ranks < world)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least as many .virtual_ranks as ranks, got %d for %d",
                        DDP_SITE, d->virtual_ranks, world);
    if (d->virtual_ranks && !d->broadcast_buffers)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected .virtual_ranks or .no_broadcast_buffers, got both: a shard begins with the "
                        "buffers that shard 0 left",
                        DDP_SITE);
    return d->virtual_ranks ? check_no_sync_norm(d) : TT_OK;
}

tt_status tt__ddp_attach_shards(tt__ddp *d) {
    if (!d->virtual_ranks)
        return TT_OK;
    tt__ddp_shards *h = calloc(1, sizeof *h);
    if (!h)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the wrapper", DDP_SITE);
    tt__shard_node block = tt__shard_block(d->virtual_ranks, tt_get_world_size(d->group), tt_get_rank(d->group));
    *h = (tt__ddp_shards){.first = block.lo, .count = block.hi - block.lo};
    d->shards = h;
    TT__TRY(allocate_shard_buffers(d));
    TT__TRY(tt__shard_sums_set(d->reducer, d->virtual_ranks, &h->sums));
    d->sums_shards = h->sums != NULL;
    return TT_OK;
}

void tt__ddp_detach_shards(tt__ddp *d) {
    tt__ddp_shards *h = d->shards;
    if (!h)
        return;
    for (int64_t i = 0; i < h->buffers; i++) {
        tt__tensor_disown(h->before[i]);
        tt__tensor_disown(h->of_first[i]);
    }
    free(h->before);
    free(h->of_first);
    free(h);
    d->shards = NULL;
    d->sums_shards = false;
}

int tt__ddp_shard_count(const tt__ddp *d, int *first) {
    *first = d->shards ? d->shards->first : d->group ? tt_get_rank(d->group) : 0;
    return d->shards ? d->shards->count : d->group != NULL;
}

tt_status tt__ddp_set_step(tt__ddp *d, int64_t step) {
    const tt__ddp_shards *h = d->shards;
    if (h && (h->open || h->now))
        return tt__fail(TT_ERR_STATE, "tt_ddp_set_step: a step is under way, at shard %d of %d", h->now + 1, h->count);
    d->step = step;
    return TT_OK;
}
