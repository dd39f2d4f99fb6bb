/* The backward pass of a sharded module. Each unit's result goes through an operator that changes nothing. When the
 * pass comes to this operator, it gathers the unit's parameters, begins to gather those of the unit before it, and
 * frees the unit's place for whole gradients. When all of the unit's gradients are there, or the next unit's turn has
 * come, they are averaged to their owners' slices. The rest is averaged when the pass ends, in an order that is the
 * same on all ranks. */
#include <stdlib.h>
#include <string.h>

#include "autograd/backward.h"
#include "autograd/leaf.h"
#include "autograd/record.h"
#include "base/error.h"
#include "comm/group.h"
#include "parallel/fully_shard/fully_shard.h"
#include "tensor/ops/ops.h"

static const char end_site[] = "the end of a backward pass";

static bool is_rest(const tt__fs_unit *u) { return u == tt__fs_rest(u->owner); }

/* Parameter i of the wrapper if it is this unit's and trains, else NULL. */
static tt__fs_param *param_of(const tt__fs_unit *u, size_t i) {
    tt__fs_param *p = &u->owner->params[i];
    return p->trains && tt__fs_is_of(p, u) ? p : NULL;
}

/* ---- averaging ---- */

/* Zero the places of parameters without a gradient, where another unit's gradients may still lie. */
static tt_status fill_unused(const tt__fs_unit *u) {
    const tt__fs *fs = u->owner;
    for (size_t i = 0; i < fs->count; i++) {
        tt__fs_param *p = param_of(u, i);
        if (!p)
            continue;
        if (tt_grad(p->whole))
            p->touched = true;
        else
            TT__TRY(tt__fill_out(FS_SITE, tt__leaf_of(p->whole)->grad, 0));
        tt__leaf_drop_grad(p->whole);
    }
    return TT_OK;
}

/* Begin the calls of the unit whose gradients were sent off last. */
static tt_status average_leaving(tt__fs *fs) {
    const tt__fs_unit *u = fs->leaving;
    if (!u)
        return TT_OK;
    fs->leaving = NULL;
    tt__carried *whole = tt__fs_grads_of(u);
    TT__TRY(tt__carried_settle(whole));
    for (size_t i = 0; i < u->bucket_count; i++) {
        tt__fs_bucket *b = &fs->buckets[u->first_bucket + i];
        if (!b->trains)
            continue;
        void *grads = tt__carried_near(whole, b->at);
        TT__TRY(tt_reduce_scatter_with(TT_ARGS(tt_reduce_scatter_args, fs->group, grads,
                                               tt__fs_element(grads, b, b->part * fs->rank), b->part, b->dtype, TT_AVG,
                                               .work = &b->averaging, .file = u->average_site, TT__CARRIED_ON(whole))));
    }
    return TT_OK;
}

/* Begin to average the unit's gradients. On a device these are still being computed, so their calls begin when the next
 * unit's gradients are sent, or when the averages are waited for, in the same order on all ranks. */
static tt_status begin_averaging(tt__fs_unit *u) {
    tt__fs *fs = u->owner;
    tt__carried *whole = tt__fs_grads_of(u);
    TT__TRY(average_leaving(fs));
    TT__TRY(fill_unused(u));
    u->grads = TT__FS_AVERAGING;
    fs->leaving = u;
    TT__TRY(tt__carried_send(whole, 0, u->bytes));
    return whole->near == whole->data ? average_leaving(fs) : TT_OK;
}

/* Copy this rank's part of the unit's averages to the device. */
static tt_status bring_averages(const tt__fs_unit *u) {
    const tt__fs *fs = u->owner;
    for (size_t i = 0; i < u->bucket_count; i++) {
        const tt__fs_bucket *b = &fs->buckets[u->first_bucket + i];
        const size_t part = (size_t)b->part * tt_dtype_size(b->dtype);
        if (b->trains)
            TT__TRY(tt__carried_receive(tt__fs_grads_of(u), b->at + part * (size_t)fs->rank, part));
    }
    return TT_OK;
}

/* Add this rank's part of the parameter's average to its slice's gradient. */
static tt_status take_average(tt__fs_param *p) {
    const tt__fs_bucket *b = tt__fs_bucket_of(p);
    const int64_t at = p->n ? p->offset + p->from : 0;
    tt_tensor *averaged =
        tt__tensor_borrow(FS_SITE, p->owner->device, tt__fs_element(b->grads, b, at), TT_SHAPE(p->n), b->dtype);
    return averaged ? tt__leaf_give_grad(p->slice, averaged) : tt_last_status();
}

static tt_status end_averaging(tt__fs_unit *u) {
    tt__fs *fs = u->owner;
    tt_status status = fs->leaving == u ? average_leaving(fs) : TT_OK;
    for (size_t i = 0; i < u->bucket_count; i++) {
        tt__fs_bucket *b = &fs->buckets[u->first_bucket + i];
        tt_status own = b->averaging ? tt_work_wait(b->averaging) : TT_OK;
        tt_work_free(b->averaging);
        b->averaging = NULL;
        status = status ? status : own;
    }
    status = status ? status : bring_averages(u);
    int scope = tt_scope_begin();
    for (size_t i = 0; i < fs->count && !status; i++)
        status = param_of(u, i) ? take_average(param_of(u, i)) : TT_OK;
    tt_scope_end(scope);
    u->grads = TT__FS_NONE;
    fs->grad_places[u->grad_place].holds = NULL;
    return status;
}

/* Give the unit its place for whole gradients: average those of the unit that has it now, and wait for them. */
static tt_status collect_for(tt__fs_unit *u) {
    tt__fs_place *place = &u->owner->grad_places[u->grad_place];
    if (u->grads == TT__FS_COLLECTING || !u->trained)
        return TT_OK;
    if (place->holds && place->holds->grads == TT__FS_COLLECTING)
        TT__TRY(begin_averaging(place->holds));
    if (place->holds)
        TT__TRY(end_averaging(place->holds));
    place->holds = u;
    u->grads = TT__FS_COLLECTING;
    u->ready = 0;
    return TT_OK;
}

/* ---- the end ---- */

/* Refuse passes in two parts: before the second, another unit's gradients take the place. */
static tt_status check_all_came(const tt__fs *fs) {
    for (size_t i = 0; i < fs->count; i++)
        if (fs->params[i].trains && tt__gradient_may_come(fs->params[i].whole))
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: the gradient of \"%s\" is left for tt_backward_deferred(), when its unit is gone",
                            FS_SITE, fs->params[i].name);
    return TT_OK;
}

static tt_status begin_rest(tt__fs *fs) {
    for (size_t i = fs->unit_count - 1; i-- > 0;)
        if (fs->units[i].grads == TT__FS_COLLECTING)
            TT__TRY(begin_averaging(&fs->units[i]));
    if (tt__fs_rest(fs)->grads == TT__FS_COLLECTING)
        TT__TRY(begin_averaging(tt__fs_rest(fs)));
    return average_leaving(fs);
}

static tt_status end_rest(tt__fs *fs) {
    for (size_t i = fs->unit_count; i-- > 0;)
        if (fs->units[i].grads == TT__FS_AVERAGING)
            TT__TRY(end_averaging(&fs->units[i]));
    return TT_OK;
}

/* Tell all ranks which parameters were used, by a back end that takes no memory of the host. */
static tt_status gather_marks(const tt__fs *fs) {
    unsigned char *all = calloc((size_t)fs->world, fs->count);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the marks of %zu parameters", FS_SITE, fs->count);
    tt_status status = tt__group_gather(fs->group, fs->marks, all, fs->count, TT_U8, end_site);
    for (size_t i = 0; i < fs->count * (size_t)fs->world && !status; i++)
        fs->marks[i % fs->count] |= all[i];
    free(all);
    return status;
}

/* Begin to tell all ranks which parameters were used; meanwhile the averages are waited for. */
static tt_status begin_telling_used(const tt__fs *fs, tt_work **work) {
    for (size_t i = 0; i < fs->count; i++)
        fs->marks[i] = fs->params[i].touched;
    if (!tt__group_takes(fs->group, TT_DEVICE_CPU))
        return gather_marks(fs);
    return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, fs->group, fs->marks, (int64_t)fs->count, TT_U8, TT_MAX,
                                      .work = work, .file = end_site));
}

/* A parameter that no rank has used gets no gradient: drop the zeros that were averaged, unless it had one before. */
static void forget_unused(const tt__fs *fs) {
    for (size_t i = 0; i < fs->count; i++)
        if (fs->params[i].trains && !fs->marks[i] && !fs->params[i].had)
            tt__leaf_drop_grad(fs->params[i].slice);
}

static tt_status average_rest(tt__fs *fs) {
    tt_work *marking = NULL;
    TT__TRY(begin_rest(fs));
    TT__TRY(begin_telling_used(fs, &marking));
    tt_status status = end_rest(fs), marked = marking ? tt_work_wait(marking) : TT_OK;
    tt_work_free(marking);
    if (!status && !marked)
        forget_unused(fs);
    return status ? status : marked;
}

static tt_status on_pass_ended(void *user, tt_status pass) {
    tt__fs *fs = user;
    fs->backward = false;
    fs->current = NULL;
    tt_status status = pass ? pass : check_all_came(fs);
    status = status ? status : average_rest(fs);
    if (status)
        return tt__fs_break(fs, status);
    tt__group_note_step(fs->group);
    return TT_OK;
}

/* ---- the pass comes to a unit ---- */

static tt_status begin_pass(tt__fs *fs) {
    TT__TRY(tt__backward_on_end(on_pass_ended, fs));
    for (size_t i = 0; i < fs->unit_count; i++)
        fs->units[i].running = 0;
    for (size_t i = 0; i < fs->count; i++) {
        tt__fs_param *p = &fs->params[i];
        p->touched = false;
        p->had = tt_grad(p->slice) != NULL;
    }
    fs->backward = true;
    return TT_OK;
}

/* Begin to average the units that the pass has left for `next`. */
static tt_status average_earlier(const tt__fs *fs, const tt__fs_unit *next) {
    for (size_t i = fs->unit_count - 1; i-- > 0;)
        if (&fs->units[i] != next && fs->units[i].grads == TT__FS_COLLECTING)
            TT__TRY(begin_averaging(&fs->units[i]));
    return TT_OK;
}

/* The pass has come to the unit's result. */
static tt_status enter_unit(tt__fs_unit *u) {
    tt__fs *fs = u->owner;
    if (!fs->backward)
        TT__TRY(begin_pass(fs));
    TT__TRY(tt__fs_need(tt__fs_rest(fs)));
    TT__TRY(collect_for(tt__fs_rest(fs)));
    if (is_rest(u))
        return fs->unit_count > 1 ? tt__fs_begin(&fs->units[fs->unit_count - 2]) : TT_OK;
    TT__TRY(average_earlier(fs, u));
    fs->current = u;
    TT__TRY(tt__fs_need(u));
    TT__TRY(collect_for(u));
    return tt__fs_begin_next(u, -1);
}

/* A pass that fails before it comes to a unit calls none of its operators, but other ranks wait for this rank. */
void tt__fs_pass_failed(void *user, const tt__reach *reach) {
    tt__fs *fs = user;
    bool reaches = !reach;
    for (size_t i = 0; i < fs->count && !reaches; i++)
        reaches = tt__reach_leaf(reach, fs->params[i].whole) != NULL;
    if (reaches)
        tt__fs_break(fs, tt_last_status());
}

typedef struct mark {
    tt__fs_handle *handle;
    size_t unit;
} mark;

void tt__fs_handle_unref(tt__fs_handle *handle) {
    if (handle && atomic_fetch_sub_explicit(&handle->refs, 1, memory_order_acq_rel) == 1)
        free(handle);
}

static tt_status mark_backward(tt_node *node) {
    const mark *m = tt__state(node);
    tt__fs *fs = m->handle->fs;
    if (!fs)
        return tt__fail(TT_ERR_STATE, "%s: the wrapper was freed before the backward pass", FS_SITE);
    tt_status status = enter_unit(&fs->units[m->unit]);
    if (status)
        return tt__fs_break(fs, status);
    return tt__grad_give(node, 0, tt__grad_of(node, 0));
}

static void mark_destroy(void *state) { tt__fs_handle_unref(((mark *)state)->handle); }

static const tt__operator mark_op = {.name = FS_SITE, .backward = mark_backward, .destroy = mark_destroy};

tt_tensor *tt__fs_mark_output(const tt__fs_unit *u, tt_tensor *y) {
    if (!tt__wants_grad(1, &y))
        return y;
    const tt__fs *fs = u->owner;
    const mark m = {fs->handle, (size_t)(u - fs->units)};
    const bool viewed = atomic_load_explicit(&y->storage->viewed, memory_order_relaxed);
    tt_tensor *out = tt__tensor_alias(FS_SITE, y, y->shape, y->stride, 0);
    if (!out)
        return NULL;
    /* y is no longer used, so this view must not keep an operator in place from changing the elements */
    atomic_store_explicit(&y->storage->viewed, viewed, memory_order_relaxed);
    tt_node *node = tt__node_new(&mark_op, 1, &y, 1, 0, &m, sizeof m);
    if (!node)
        return tt__abandon(out);
    atomic_fetch_add_explicit(&fs->handle->refs, 1, memory_order_relaxed);
    tt__node_made(node, 0, out);
    tt__node_unref(node);
    return out;
}

tt_status tt__fs_on_gradient(tt_tensor *x, void *user) {
    (void)x;
    tt__fs_param *p = user;
    tt__fs *fs = p->owner;
    tt__fs_unit *u = &fs->units[p->unit];
    if (u->grads != TT__FS_COLLECTING)
        return tt__fs_break(fs, tt__fail(TT_ERR_STATE,
                                         "%s: \"%s\" got a gradient when the backward pass was not at its unit, "
                                         "\"%s\": it was used outside of that",
                                         FS_SITE, p->name, u->name));
    u->ready++;
    tt__fs_poke(fs);
    if (is_rest(u) || u->ready < u->trained)
        return TT_OK;
    tt_status status = begin_averaging(u);
    return status ? tt__fs_break(fs, status) : TT_OK;
}
