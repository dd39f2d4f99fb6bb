/* Where the parameters of a sharded module lie, and their slices. */
#include <stdlib.h>
#include <string.h>

#include "autograd/leaf.h"
#include "base/error.h"
#include "comm/group.h"
#include "optim/optimizer.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/fully_shard/fully_shard.h"
#include "tensor/ops/ops.h"

enum { FS_LINE = 64 };

static tt_status fs_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "%s: no memory for the slices", FS_SITE); }

static int64_t round_up_to(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* ---- the parameters ---- */

static bool unit_has(const tt__fs_unit *u, const tt_tensor *x) {
    const tt_named_tensors *list = u->module ? tt_module_parameters(u->module) : NULL;
    for (int64_t i = 0; list && i < list->count; i++)
        if (list->tensors[i] == x)
            return true;
    return false;
}

/* The unit that has the parameter; if several or none have it, the unit of the rest. */
static size_t find_unit(const tt__fs *fs, const tt_tensor *x) {
    size_t found = fs->unit_count - 1, times = 0;
    for (size_t i = 0; i + 1 < fs->unit_count; i++)
        if (unit_has(&fs->units[i], x)) {
            found = i;
            times++;
        }
    return times == 1 ? found : fs->unit_count - 1;
}

static tt_status check_fs_param(const tt__fs *fs, const char *name, const tt_tensor *x) {
    if (tt_tensor_device(x) != fs->device)
        return tt__fail(TT_ERR_INVALID,
                        "%s: parameter \"%s\" lies on %s, and those before it on %s; expected all on one device: "
                        "tt_module_to_device() first",
                        FS_SITE, name, tt_device_name(tt_tensor_device(x)), fs->device->name);
    if (tt__leaf_has_hook(x, tt__ddp_on_gradient) || tt__leaf_has_hook(x, tt__fs_on_gradient))
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\" belongs to another wrapper already; free that first",
                        FS_SITE, name);
    if (tt__storage_is_away(x->storage))
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\" was spread over ranks by another wrapper", FS_SITE, name);
    if (!x->contiguous)
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\", %s, lies in another order of memory; make it contiguous",
                        FS_SITE, name, TT__DESCRIBE(x));
    if (tt__tensor_is_shared(x))
        return tt__fail(TT_ERR_STATE,
                        "%s: parameter \"%s\" shares its memory with another tensor (a view, or a graph that is still "
                        "to go backward)",
                        FS_SITE, name);
    return tt__refuse_sparse_grad(FS_SITE, name, x);
}

static tt_status list_fs_params(tt__fs *fs) {
    const tt_named_tensors *all = tt_module_parameters(fs->module);
    if (!all)
        return tt_last_status();
    if (all->count == 0)
        return tt__fail(TT_ERR_INVALID, "%s: the module has no parameter", FS_SITE);
    fs->device = tt_tensor_device(all->tensors[0]);
    fs->params = calloc((size_t)all->count, sizeof *fs->params);
    fs->marks = calloc((size_t)all->count, 1);
    if (!fs->params || !fs->marks)
        return fs_no_memory();
    for (int64_t i = 0; i < all->count; i++) {
        tt_tensor *x = all->tensors[i];
        TT__TRY(check_fs_param(fs, all->names[i], x));
        tt__fs_param *p = &fs->params[fs->count++];
        *p = (tt__fs_param){.owner = fs,
                            .whole = tt__tensor_watch(x),
                            .name = strdup(all->names[i]),
                            .unit = find_unit(fs, x),
                            .numel = tt_tensor_numel(x),
                            .trains = tt_requires_grad(x)};
        fs->units[p->unit].trained += p->trains;
        if (!p->name)
            return fs_no_memory();
    }
    return TT_OK;
}

/* ---- buckets ---- */

/* Find the unit's bucket for this parameter, or make one. Buckets of a unit follow each other. */
static tt_status find_bucket(tt__fs *fs, tt__fs_unit *u, const tt__fs_param *p, size_t *at) {
    const tt_dtype dtype = tt_tensor_dtype(p->whole);
    for (*at = u->first_bucket; *at < fs->bucket_count; ++*at)
        if (fs->buckets[*at].dtype == dtype && fs->buckets[*at].trains == p->trains)
            return TT_OK;
    tt__fs_bucket *buckets = reallocarray(fs->buckets, fs->bucket_count + 1, sizeof *buckets);
    if (!buckets)
        return fs_no_memory();
    fs->buckets = buckets;
    buckets[fs->bucket_count++] = (tt__fs_bucket){.dtype = dtype, .trains = p->trains};
    u->bucket_count++;
    return TT_OK;
}

/* Cut a bucket into parts of a size that no earlier bucket of its type has. */
static void cut_bucket(const tt__fs *fs, size_t at) {
    tt__fs_bucket *b = &fs->buckets[at];
    const int64_t line = FS_LINE / (int64_t)tt_dtype_size(b->dtype);
    b->part = round_up_to((b->count + fs->world - 1) / fs->world, line);
    b->part = b->part ? b->part : line;
    for (size_t i = 0; i < at; i++)
        if (fs->buckets[i].dtype == b->dtype && fs->buckets[i].part == b->part) {
            b->part += line;
            i = (size_t)-1; /* compare with all again */
        }
}

static tt_status lay_out_unit(tt__fs *fs, tt__fs_unit *u) {
    u->first_bucket = fs->bucket_count;
    for (size_t i = 0; i < fs->count; i++) {
        tt__fs_param *p = &fs->params[i];
        if (!tt__fs_is_of(p, u))
            continue;
        TT__TRY(find_bucket(fs, u, p, &p->bucket));
        tt__fs_bucket *b = &fs->buckets[p->bucket];
        p->offset = b->count;
        b->count = round_up_to(b->count + p->numel, FS_LINE / (int64_t)tt_dtype_size(b->dtype));
    }
    for (size_t i = 0; i < u->bucket_count; i++) {
        tt__fs_bucket *b = &fs->buckets[u->first_bucket + i];
        cut_bucket(fs, u->first_bucket + i);
        b->at = u->bytes;
        u->bytes += (size_t)(b->part * fs->world) * tt_dtype_size(b->dtype);
    }
    return TT_OK;
}

/* ---- places ---- */

static void use_place(tt__fs_place *place, const tt__fs_unit *u) {
    place->bytes = u->bytes > place->bytes ? u->bytes : place->bytes;
}

/* Units take two places in turn. The unit of the rest has its own, and so has each unit that stays whole. */
static tt_status lay_out_places(tt__fs *fs) {
    const size_t last = fs->unit_count - 1;
    fs->places = calloc(fs->unit_count + 2, sizeof *fs->places);
    fs->grad_places = calloc(3, sizeof *fs->grad_places);
    if (!fs->places || !fs->grad_places)
        return fs_no_memory();
    fs->place_count = fs->keeps ? fs->unit_count : 3;
    fs->grad_place_count = 3;
    for (size_t i = 0; i < fs->unit_count; i++) {
        tt__fs_unit *u = &fs->units[i];
        u->grad_place = i == last ? 2 : i % 2;
        u->place = fs->keeps ? i : u->grad_place;
        use_place(&fs->places[u->place], u);
        use_place(&fs->grad_places[u->grad_place], u);
    }
    return TT_OK;
}

static void cut_param(const tt__fs *fs, tt__fs_param *p) {
    const int64_t part = tt__fs_bucket_of(p)->part, begin = part * fs->rank - p->offset, end = begin + part;
    p->from = begin < 0 ? 0 : begin > p->numel ? p->numel : begin;
    p->n = (end < 0 ? 0 : end > p->numel ? p->numel : end) - p->from;
}

tt_status tt__fs_lay_out(tt__fs *fs) {
    TT__TRY(list_fs_params(fs));
    for (size_t i = 0; i < fs->unit_count; i++)
        TT__TRY(lay_out_unit(fs, &fs->units[i]));
    for (size_t i = 0; i < fs->count; i++)
        cut_param(fs, &fs->params[i]);
    return lay_out_places(fs);
}

/* ---- memory ---- */

static tt_status take_memory_for(const tt__fs *fs, tt__carried *out, size_t bytes) {
    return tt__carried_make(out, fs->group, fs->device, bytes, FS_SITE);
}

tt_status tt__fs_allocate(tt__fs *fs) {
    size_t bytes = 0;
    for (size_t i = 0; i < fs->bucket_count; i++) {
        tt__fs_bucket *b = &fs->buckets[i];
        b->slices_at = bytes;
        bytes += (size_t)b->part * tt_dtype_size(b->dtype);
    }
    TT__TRY(take_memory_for(fs, &fs->slices, bytes));
    for (size_t i = 0; i < fs->place_count; i++)
        TT__TRY(take_memory_for(fs, &fs->places[i].memory, fs->places[i].bytes));
    for (size_t i = 0; i < fs->grad_place_count; i++)
        TT__TRY(take_memory_for(fs, &fs->grad_places[i].memory, fs->grad_places[i].bytes));
    for (size_t i = 0; i < fs->unit_count; i++) {
        const tt__fs_unit *u = &fs->units[i];
        for (size_t k = 0; k < u->bucket_count; k++) {
            tt__fs_bucket *b = &fs->buckets[u->first_bucket + k];
            b->slices = tt__carried_at(&fs->slices, b->slices_at);
            b->values = tt__carried_at(tt__fs_values_of(u), b->at);
            b->grads = b->trains ? tt__carried_at(tt__fs_grads_of(u), b->at) : NULL;
        }
    }
    return TT_OK;
}

/* ---- slices ---- */

static void *slice_of(const tt__fs_param *p) {
    const tt__fs_bucket *b = tt__fs_bucket_of(p);
    return tt__fs_element(b->slices, b, p->n ? p->offset + p->from - b->part * p->owner->rank : 0);
}

/* Move x to `data`, and mark its elements as away. */
static tt_status send_values_away(const tt__fs_param *p, tt_tensor *x, void *data) {
    char *name = strdup(p->name);
    tt_status status = name ? tt__tensor_set_data(x, data) : fs_no_memory();
    if (status) {
        free(name);
        return status;
    }
    x->storage->away_name = name;
    atomic_store_explicit(&x->storage->away, true, memory_order_relaxed);
    return TT_OK;
}

tt_status tt__fs_put_in_place(tt__fs_param *p) {
    TT__TRY(send_values_away(p, p->whole, tt__fs_place_of(tt__fs_bucket_of(p)->values, p)));
    p->moved = true;
    return TT_OK;
}

/* Copy the slice's part of the whole values, and let these go. */
static tt_status make_fs_slice(tt__fs_param *p) {
    const tt__fs_bucket *b = tt__fs_bucket_of(p);
    const tt_shape shape = TT_SHAPE(p->n);
    tt_tensor *slice = tt__tensor_borrow(FS_SITE, p->owner->device, slice_of(p), shape, b->dtype);
    p->slice = tt__optim_hold(slice);
    if (!p->slice)
        return tt_last_status();
    tt_tensor part = tt__tensor_seen(p->whole, shape, NULL);
    part.data = tt__fs_element(part.data, b, p->from);
    TT__TRY(tt__copy_out(FS_SITE, p->slice, &part));
    if (!p->trains)
        return tt__fs_put_in_place(p);
    if (!tt_requires_grad_(p->slice, true))
        return tt_last_status();
    TT__TRY(tt__leaf_set_grad_storage(p->whole, tt__fs_place_of(b->grads, p)));
    p->attached = true;
    tt__leaf_drop_grad(p->whole);
    TT__TRY(tt__fs_put_in_place(p));
    tt__leaf_set_part(p->whole, p->slice);
    return tt_register_post_accumulate_grad_hook(p->whole, tt__fs_on_gradient, p);
}

tt_status tt__fs_make_slices(tt__fs *fs) {
    for (size_t i = 0; i < fs->count; i++)
        TT__TRY(make_fs_slice(&fs->params[i]));
    return tt__carried_send(&fs->slices, 0, fs->slices.bytes);
}

/* ---- ending ---- */

static void release_param(tt__fs_param *p) {
    static _Alignas(FS_LINE) char nowhere[FS_LINE];
    if (p->attached) {
        tt__leaf_remove_hook(p->whole, tt__fs_on_gradient, p);
        tt__leaf_set_part(p->whole, NULL);
        tt_ignore(tt__leaf_set_grad_storage(p->whole, NULL));
    }
    if (p->moved) { /* old records keep the old storage, which stays marked as away */
        atomic_store_explicit(&p->whole->storage->away, true, memory_order_relaxed);
        tt_ignore(send_values_away(p, p->whole, nowhere));
    }
    if (p->slice) {
        tt_zero_grad(p->slice);
        tt_ignore(send_values_away(p, p->slice, nowhere));
    }
    tt__tensor_disown(p->slice);
    tt__tensor_unwatch(p->whole);
    free(p->name);
}

static void release_unit(tt__fs_unit *u) {
    if (u->module && u->before)
        tt_ignore(tt_module_remove_hook(u->module, u->before));
    if (u->module && u->after)
        tt_ignore(tt_module_remove_hook(u->module, u->after));
    free(u->name);
    free(u->gather_site);
    free(u->average_site);
}

/* Free the memory. If the group has failed, its end releases the rest. */
static void give_memory(const tt__fs *fs, tt__carried *memory) {
    tt__carried_free(memory, fs->group, "tt_module_free");
}

void tt__fs_release(tt__fs *fs) {
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    if (fs->watcher)
        fs->watcher->detached(fs->watcher_user);
    tt__unwatch_passes(&fs->passes);
    if (fs->handle)
        fs->handle->fs = NULL;
    tt__fs_handle_unref(fs->handle);
    for (size_t i = 0; i < fs->count; i++)
        release_param(&fs->params[i]);
    for (size_t i = 0; i < fs->unit_count; i++)
        release_unit(&fs->units[i]);
    for (size_t i = 0; i < fs->bucket_count; i++) {
        tt_work_free(fs->buckets[i].gathering);
        tt_work_free(fs->buckets[i].averaging);
    }
    give_memory(fs, &fs->slices);
    for (size_t i = 0; i < fs->place_count && fs->places; i++)
        give_memory(fs, &fs->places[i].memory);
    for (size_t i = 0; i < fs->grad_place_count && fs->grad_places; i++)
        give_memory(fs, &fs->grad_places[i].memory);
    if (fs->group)
        tt__group_let_go(fs->group);
    free(fs->units);
    free(fs->buckets);
    free(fs->params);
    free(fs->places);
    free(fs->grad_places);
    free(fs->marks);
    free(fs);
    tt__error_restore_reason(&saved);
}
