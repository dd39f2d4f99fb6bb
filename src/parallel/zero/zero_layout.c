/* Where the parameters of a sharded optimizer lie, and their slices. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "comm/group.h"
#include "parallel/zero/zero.h"

#include <stdlib.h>
#include <string.h>

const char tt__zero_kind[] = "ZeRO";

tt__zero *tt__zero_of(const char *who, const tt_optimizer *optimizer) {
    if (!optimizer) {
        tt__fail_argument("%s: the optimizer is NULL", who);
        return NULL;
    }
    if (optimizer->shards && optimizer->shards->kind == tt__zero_kind)
        return optimizer->shards_user;
    return tt__fail_null(TT_ERR_INVALID, "%s: expected an optimizer that tt_zero_optimizer() made", who);
}

/* ---- entries of state ---- */

/* Return the slice that has this number in the optimizer; NULL: none has. */
static const tt_tensor *slice_number(const tt_optimizer *o, long long number) {
    for (size_t g = 0; g < o->group_count; g++) {
        const tt__optim_group *group = &o->groups[g];
        if (number < group->first || number >= group->first + (long long)group->count)
            continue;
        const tt__optim_param *p = &group->params[number - group->first];
        return p->low ? p->low : p->tensor;
    }
    return NULL;
}

const tt__zero_param *tt__zero_param_of(const tt__zero *z, const tt_tensor *slice) {
    for (size_t i = 0; slice && i < z->count; i++)
        if (z->params[i].slice == slice)
            return &z->params[i];
    return NULL;
}

const tt__zero_param *tt__zero_state_of(const tt__zero *z, const char *name) {
    static const char prefix[] = "state.";
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return NULL;
    const long long number = strtoll(name + sizeof prefix - 1, &end, 10);
    if (end == name + sizeof prefix - 1 || *end != '.' || !strcmp(end, ".step"))
        return NULL;
    return tt__zero_param_of(z, slice_number(z->optimizer, number));
}

void tt__zero_forget_state(tt__zero *z) {
    tt__dict_free(&z->dict);
    for (size_t i = 0; i < z->whole_count; i++)
        tt__tensor_disown(z->whole[i]);
    free(z->whole);
    z->whole = NULL;
    z->whole_count = 0;
    z->gathered = false;
}

static const char who[] = "tt_zero_optimizer";

static tt_status layout_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "%s: no memory for the slices", who); }

static size_t element_bytes_of(const tt__zero_bucket *b) { return tt_dtype_size(b->dtype); }

static void *at_element(const tt__zero_bucket *b, int64_t i) {
    return tt__carried_at(&b->values, (size_t)i * element_bytes_of(b));
}

/* ---- making ---- */

static tt_status lay_out_buckets(tt__zero *z) {
    const tt_reducer *r = z->ddp->reducer;
    z->bucket_count = r->bucket_count;
    z->buckets = calloc(r->bucket_count, sizeof *z->buckets);
    if (!z->buckets)
        return layout_no_memory();
    for (size_t i = 0; i < r->bucket_count; i++) {
        tt__zero_bucket *b = &z->buckets[i];
        b->dtype = r->buckets[i].dtype;
        b->part = (int64_t)r->buckets[i].marks_at / z->world;
    }
    return TT_OK;
}

/* Find the elements of the parameter that lie in this rank's part. */
static void cut(const tt__zero *z, tt__zero_param *p) {
    const int64_t part = z->buckets[p->bucket].part, begin = part * z->rank - p->offset, end = begin + part;
    p->from = begin < 0 ? 0 : begin > p->numel ? p->numel : begin;
    p->n = (end < 0 ? 0 : end > p->numel ? p->numel : end) - p->from;
}

static tt_status lay_out_params(tt__zero *z) {
    const tt__ddp *d = z->ddp;
    z->params = calloc(d->attached, sizeof *z->params);
    if (!z->params)
        return layout_no_memory();
    for (; z->count < d->attached; z->count++) {
        const tt__reducer_param *from = &d->reducer->params[z->count];
        tt__zero_param *p = &z->params[z->count];
        const tt__reducer_bucket *bucket = &d->reducer->buckets[from->bucket];
        *p = (tt__zero_param){.whole = tt__tensor_watch(d->slots[z->count].parameter),
                              .name = strdup(from->name),
                              .bucket = from->bucket,
                              .offset = ((char *)from->gradient - (char *)bucket->data) /
                                        (int64_t)tt_dtype_size(bucket->dtype),
                              .numel = tt_tensor_numel(d->slots[z->count].parameter)};
        cut(z, p);
        if (!p->name)
            return z->count++, layout_no_memory();
    }
    return TT_OK;
}

static tt_status check_movable(const tt__zero_param *p) {
    if (!p->whole->contiguous)
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\", %s, lies in another order of memory; make it contiguous",
                        who, p->name, TT__DESCRIBE(p->whole));
    if (tt__tensor_is_shared(p->whole))
        return tt__fail(TT_ERR_STATE,
                        "%s: parameter \"%s\" shares its memory with another tensor (a graph that is still to go "
                        "backward, a view, or another optimizer of this kind)",
                        who, p->name);
    return TT_OK;
}

static void *take_grad_memory(const tt_device *device, size_t bytes) {
    return tt__device_is_host(device) ? aligned_alloc(64, bytes) : device->alloc(device, bytes);
}

static void give_grad_memory_back(const tt_device *device, void *memory) {
    if (memory && !tt__device_is_host(device))
        device->free(device, memory);
    else
        free(memory);
}

static tt_status allocate_grads(const tt__zero *z) {
    for (size_t i = 0; i < z->bucket_count; i++) {
        tt__zero_bucket *b = &z->buckets[i];
        size_t bytes = (size_t)b->part * element_bytes_of(b);
        if (z->stage > 1 && !(b->grads = take_grad_memory(z->device, bytes ? bytes : 64)))
            return tt__device_is_host(z->device) ? layout_no_memory() : tt__fail_prefix("%s", who);
    }
    return TT_OK;
}

tt_status tt__zero_allocate(tt__zero *z) {
    for (size_t i = 0; i < z->bucket_count; i++) {
        tt__zero_bucket *b = &z->buckets[i];
        TT__TRY(
            tt__carried_make(&b->values, z->group, z->device, (size_t)(b->part * z->world) * element_bytes_of(b), who));
    }
    return TT_OK;
}

static tt_status move_param(const tt__zero *z, tt__zero_param *p) {
    const tt__zero_bucket *b = &z->buckets[p->bucket];
    TT__TRY(tt__tensor_move(who, p->whole, at_element(b, p->offset)));
    p->moved = true;
    return TT_OK;
}

/* The place of the slice's gradient. */
static void *grad_of_slice(const tt__zero *z, const tt__zero_param *p) {
    const tt__zero_bucket *b = &z->buckets[p->bucket];
    const int64_t at = p->n ? p->offset + p->from - b->part * z->rank : 0;
    return b->grads ? (char *)b->grads + (size_t)at * element_bytes_of(b) : tt__zero_averaged(z, p);
}

static tt_status make_slice(const tt__zero *z, tt__zero_param *p) {
    const tt__zero_bucket *b = &z->buckets[p->bucket];
    tt_tensor *slice = tt__tensor_borrow(who, z->device, at_element(b, p->n ? p->offset + p->from : b->part * z->rank),
                                         TT_SHAPE(p->n), b->dtype);
    p->slice = tt__optim_hold(slice);
    if (!p->slice || !tt_requires_grad_(p->slice, true))
        return tt_last_status();
    TT__TRY(tt__leaf_set_grad_storage(p->slice, grad_of_slice(z, p)));
    tt__leaf_set_part(p->whole, p->slice);
    return TT_OK;
}

tt_status tt__zero_lay_out(tt__zero *z) {
    tt__group_hold(z->group = z->ddp->group);
    TT__TRY(lay_out_buckets(z));
    TT__TRY(lay_out_params(z));
    for (size_t i = 0; i < z->count; i++)
        TT__TRY(check_movable(&z->params[i]));
    return allocate_grads(z);
}

tt_status tt__zero_make_slices(const tt__zero *z) {
    for (size_t i = 0; i < z->count; i++)
        TT__TRY(move_param(z, &z->params[i]));
    for (size_t i = 0; i < z->count; i++)
        TT__TRY(make_slice(z, &z->params[i]));
    return TT_OK;
}

/* ---- ending ---- */

/* Move the parameter to memory of its own, unless it has some. False: no memory; it stays. */
static bool move_back(const tt__zero *z, tt__zero_param *p) {
    const tt__zero_bucket *b = &z->buckets[p->bucket];
    const void *values = p->moved ? at_element(b, p->offset) : NULL;
    if (!values || p->whole->data != values)
        return true;
    return tt__tensor_move(who, p->whole, NULL) == TT_OK;
}

static bool release_params(tt__zero *z) {
    bool moved = true;
    for (size_t i = 0; i < z->count; i++) {
        tt__zero_param *p = &z->params[i];
        moved = move_back(z, p) && moved;
        if (p->moved) /* another optimizer may own one that was not moved */
            tt__leaf_set_part(p->whole, NULL);
        if (z->stage > 2) /* the module owns the slices */
            tt__tensor_unref(p->slice);
        else
            tt__tensor_disown(p->slice);
        tt__tensor_unwatch(p->whole);
        free(p->name);
    }
    return moved;
}

void tt__zero_release(tt__zero *z) {
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    tt__zero_forget_state(z);
    bool moved = release_params(z);
    for (size_t i = 0; z->buckets && i < z->bucket_count; i++)
        give_grad_memory_back(z->device, z->buckets[i].grads);
    for (size_t i = 0; z->buckets && i < z->bucket_count; i++)
        if (moved)
            tt__carried_free(&z->buckets[i].values, z->group, "tt_optimizer_free");
        else
            tt_ignore(tt__carried_settle(&z->buckets[i].values));
    if (z->group && moved) /* else parameters still lie in the group's memory */
        tt__group_let_go(z->group);
    free(z->params);
    free(z->buckets);
    free(z);
    tt__error_restore_reason(&saved);
}
