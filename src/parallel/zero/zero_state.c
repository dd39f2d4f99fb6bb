/* The state of whole parameters: gathered from all ranks' slices, and cut into slices. Other entries (steps, options)
 * are alike on all ranks. */
#include "parallel/zero/zero.h"
#include "reducer/text_agreement.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/group.h"

static const char gather_name[] = "tt_zero_consolidate";
static const char load_name[] = "tt_optimizer_load_state_dict";

/* ---- gathering ---- */

/* How many elements of the parameter rank r has; *from: how many come before. */
static int64_t elements_of(const tt__zero *z, const tt__zero_param *p, int r, int64_t *from) {
    const int64_t part = z->buckets[p->bucket].part, begin = part * r - p->offset, end = begin + part;
    *from = begin < 0 ? 0 : begin > p->numel ? p->numel : begin;
    return (end < 0 ? 0 : end > p->numel ? p->numel : end) - *from;
}

/* Gather one entry, from all ranks to all. Returns it, held. */
static tt_tensor *gather_entry(const tt__zero *z, const tt__zero_param *p, tt_tensor *slice, const char *name) {
    const tt_device *at = tt__group_takes(z->group, TT_DEVICE_CPU) ? &tt__cpu_device : z->device;
    tt_tensor *whole = tt__tensor_new_on(gather_name, at, p->whole->shape, tt_tensor_dtype(slice), NULL);
    int64_t *counts = calloc(2 * (size_t)z->world, sizeof *counts), *offsets = counts ? counts + z->world : NULL;
    const tt_tensor *flat = tt_contiguous(tt_to_device(slice, at));
    tt_status status = !whole || !flat ? tt_last_status() : TT_OK;
    if (!status && !counts)
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for %d ranks", gather_name, z->world);
    for (int r = 0; r < z->world && !status; r++)
        counts[r] = elements_of(z, p, r, &offsets[r]);
    if (!status &&
        tt_all_gather_v_with(TT_ARGS(tt_all_gather_v_args, z->group, flat->data, whole->data, counts, offsets,
                                     tt_tensor_dtype(slice), .file = gather_name, .device = at->type,
                                     .device_index = at->index, .stream = at->queue ? tt_device_stream(at) : NULL)))
        status = tt__fail_prefix("\"%s\"", name);
    if (!status && !(whole = tt_to_device(whole, &tt__cpu_device)))
        status = tt_last_status();
    free(counts);
    return status ? NULL : tt__optim_hold(whole);
}

static tt_status gather_entries(tt__zero *z, const tt_named_tensors *own, bool keep) {
    for (int64_t i = 0; i < own->count; i++) {
        const tt__zero_param *p = tt__zero_state_of(z, own->names[i]);
        if (!p)
            continue;
        int scope = tt_scope_begin();
        tt_tensor *whole = scope ? gather_entry(z, p, own->tensors[i], own->names[i]) : NULL;
        tt_status status = whole ? TT_OK : tt_last_status();
        tt_scope_end(scope);
        TT__TRY(status);
        if (keep)
            z->whole[i] = whole;
        else
            tt__tensor_disown(whole);
    }
    return TT_OK;
}

static tt_status consolidate(tt__zero *z, int root) {
    if (root < TT_ALL_RANKS || root >= z->world)
        return tt__fail(TT_ERR_INVALID, "%s: expected a rank below %d, or TT_ALL_RANKS, got %d", gather_name, z->world,
                        root);
    const tt_named_tensors *own = tt__optim_own_state_dict(z->optimizer);
    if (!own)
        return tt_last_status();
    tt__zero_forget_state(z);
    const bool keep = root == TT_ALL_RANKS || root == z->rank;
    z->whole = calloc((size_t)own->count + 1, sizeof(tt_tensor *));
    if (!z->whole)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld entries", gather_name, (long long)own->count);
    z->whole_count = (size_t)own->count;
    tt_status status = gather_entries(z, own, keep);
    if (status)
        tt__zero_forget_state(z);
    z->gathered = !status;
    z->gathered_to = root;
    return status;
}

tt_status tt_zero_consolidate(tt_optimizer *optimizer, int root) {
    tt__zero *z = tt__zero_of(gather_name, optimizer);
    if (!z)
        return tt_last_status();
    tt_status status = consolidate(z, root);
    if (status == TT_ERR_MEMORY) /* the others wait for this rank's slices */
        tt__abort_with_error(z->group);
    return status;
}

/* ---- looking ---- */

static tt_status fill_whole_dict(tt__zero *z, const tt_named_tensors *own) {
    TT__TRY(tt__dict_init(&z->dict, "tt_optimizer_state_dict", (size_t)own->count));
    for (int64_t i = 0; i < own->count; i++)
        TT__TRY(tt__dict_add(&z->dict, z->whole[i] ? z->whole[i] : own->tensors[i], "%s", own->names[i]));
    return TT_OK;
}

const tt_named_tensors *tt__zero_state_dict(void *user) {
    tt__zero *z = user;
    if (!z->gathered || (z->gathered_to != TT_ALL_RANKS && z->gathered_to != z->rank))
        return tt__fail_null(TT_ERR_STATE,
                             "tt_optimizer_state_dict: the state is spread over %d ranks; call tt_zero_consolidate() "
                             "on all of them after the last step%s",
                             z->world, z->gathered ? ", for this rank too" : "");
    const tt_named_tensors *own = tt__optim_own_state_dict(z->optimizer);
    return own ? tt__dict_finish(&z->dict, fill_whole_dict(z, own)) : NULL;
}

/* ---- loading ---- */

/* Return this rank's slice of an entry, in the open scope. */
static tt_tensor *cut_entry(const tt__zero_param *p, const char *name, tt_tensor *x) {
    const tt_shape shape = tt_tensor_shape(x), expected = tt_tensor_shape(p->whole);
    if (!tt__shape_equal(&shape, &expected))
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: \"%s\": expected the state of \"%s\", %s, got %s", load_name, name,
                               p->name, TT__DESCRIBE(p->whole), TT__DESCRIBE(x));
    return tt_narrow(tt_reshape(tt_contiguous(x), TT_SHAPE(p->numel)), 0, p->from, p->n);
}

static tt_status load_cut(tt__zero *z, const tt_named_tensors *state, tt_tensor **cut) {
    for (int64_t i = 0; i < state->count; i++) {
        const tt__zero_param *p = tt__zero_state_of(z, state->names[i]);
        cut[i] = p ? cut_entry(p, state->names[i], state->tensors[i]) : state->tensors[i];
        if (!cut[i])
            return tt_last_status();
    }
    return tt__optim_load_own_state_dict(z->optimizer, TT_NAMED_TENSORS(state->count, state->names, cut));
}

tt_status tt__zero_load_state_dict(void *user, const tt_named_tensors *state) {
    tt__zero *z = user;
    tt_tensor **cut = calloc((size_t)state->count + 1, sizeof(tt_tensor *));
    if (!cut)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld entries", load_name, (long long)state->count);
    int scope = tt_scope_begin();
    bool before = tt_no_grad_begin();
    tt_status status = scope ? load_cut(z, state, cut) : tt_last_status();
    tt_no_grad_end(before);
    tt_scope_end(scope);
    free(cut);
    if (!status)
        tt__zero_forget_state(z);
    return status;
}
