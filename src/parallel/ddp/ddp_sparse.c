/* Sparse gradients: their rows are gathered from all ranks, and rows of one number are added up. */
#include "parallel/ddp/ddp_state.h"

#include "autograd/leaf.h"
#include "base/error.h"
#include "comm/group.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>

#include <tutti/functional.h>

/* What errors of these collectives name instead of a line of the program. */
static const char rows_site[] = "the averaging of sparse gradients";

/* The first number that a rank tells, before its numbers of rows. */
enum { ROWS_FINE = 0, ROWS_FAILED = 1 };

/* An exchange of the rows of P parameters, over W ranks. */
typedef struct rows_exchange {
    const tt__ddp *d;
    int world;            /* W */
    size_t count;         /* P */
    tt__ddp_slot **slots; /* (P) */
    /* (W, 1 + P): of each rank ROWS_FINE or ROWS_FAILED, and its number of rows of each parameter. The next three lie
     * in the same memory. */
    int64_t *told;
    int64_t *own;     /* (1 + P): what this rank tells */
    int64_t *counts;  /* (W): elements of each rank in an all_gather_v */
    int64_t *offsets; /* (W): where they begin */
} rows_exchange;

bool tt__ddp_has_gradient(const tt__ddp_slot *s) {
    return s->sparse ? tt_sparse_grad_values(s->parameter) != NULL : tt_grad(s->parameter) != NULL;
}

/* ---- do they fit? */

static tt_status refuse_beside(const char *name, const char *option, const char *why) {
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "tt_ddp: parameter \"%s\" is given sparse gradients, which don't go with %s: %s; make its "
                    "embedding without .sparse",
                    name, option, why);
}

tt_status tt__ddp_check_sparse(const tt__ddp *d, const tt_named_tensors *all) {
    for (int64_t i = 0; i < all->count; i++) {
        const tt_tensor *x = all->tensors[i];
        if (!x->sparse_grad || !x->requires_grad || tt__ddp_is_named(d->ignored, all->names[i]))
            continue;
        if (x->dtype != TT_F32 && x->dtype != TT_F64)
            return refuse_beside(all->names[i], tt_dtype_name(x->dtype), "no optimizer takes such rows of 16 bits");
        if (d->virtual_ranks)
            return refuse_beside(all->names[i], ".virtual_ranks", "their sums are over whole gradients");
        if (d->hook.table && d->hook.table->told_over)
            return refuse_beside(all->names[i], d->hook.table->name, "it averages over a part of the ranks");
    }
    return TT_OK;
}

tt_status tt__ddp_refuse_sparse(const char *who, const tt__ddp *d) {
    for (size_t i = 0; i < d->attached; i++)
        if (d->slots[i].sparse)
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: parameter \"%s\" of the wrapper is given sparse gradients, which it can't work with: "
                            "make its embedding without .sparse",
                            who, d->reducer->params[i].name);
    return TT_OK;
}

/* ---- the exchange */

/* List the sparse parameters that any rank used in the step; `slots` NULL: only count them. */
static size_t list_used_rows(const tt__ddp *d, tt__ddp_slot **slots) {
    size_t n = 0;
    for (size_t i = 0; i < d->attached; i++) {
        tt__ddp_slot *s = &d->slots[i];
        if (!s->sparse || !tt_reducer_was_used(d->reducer, (int64_t)s->index))
            continue;
        if (slots)
            slots[n] = s;
        n++;
    }
    return n;
}

static tt_status make_exchange(tt__ddp *d, size_t count, rows_exchange *e) {
    const int world = tt_get_world_size(d->group);
    const size_t ranks = (size_t)world;
    *e = (rows_exchange){.d = d, .world = world, .count = count};
    e->slots = calloc(count, sizeof *e->slots);
    e->told = calloc((ranks + 1) * (1 + count) + 2 * ranks, sizeof *e->told);
    if (!e->slots || !e->told)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu parameters", rows_site, count);
    e->own = e->told + ranks * (1 + count);
    e->counts = e->own + 1 + count;
    e->offsets = e->counts + ranks;
    list_used_rows(d, e->slots);
    return TT_OK;
}

static void end_exchange(rows_exchange *e) {
    free(e->slots);
    free(e->told);
}

/* What this rank's rows are scaled by, so that a sum over ranks is the average: see ddp_pass.c. */
static double share_of_rank(const tt__ddp *d) {
    const tt__ddp_presence *p = d->presence;
    double weight = p && p->nominal ? (double)p->examples / (double)p->nominal : 1;
    return weight / tt_get_world_size(d->group);
}

/* Scale what this rank gives, and count its rows. */
static tt_status prepare_rows(rows_exchange *e) {
    for (size_t k = 0; k < e->count; k++) {
        const tt__ddp_slot *s = e->slots[k];
        tt_tensor *values = s->gives ? tt_sparse_grad_values(s->parameter) : NULL;
        e->own[1 + k] = values ? tt_tensor_size(values, 0) : 0;
        if (values && !tt_scale_(values, share_of_rank(e->d)))
            return tt_last_status();
    }
    return TT_OK;
}

/* Tell all ranks how many rows this one has, or that it has failed. */
static tt_status tell_counts(rows_exchange *e, tt_status own) {
    tt__saved_error saved;
    tt__error_save(&saved);
    const int64_t each = 1 + (int64_t)e->count;
    e->own[0] = own ? ROWS_FAILED : ROWS_FINE;
    tt_status status = tt__group_gather(e->d->group, e->own, e->told, (size_t)each, TT_I64, rows_site);
    if (own) {
        tt__error_restore(&saved);
        return own;
    }
    TT__TRY(status);
    for (int r = 0; r < e->world; r++)
        if (e->told[r * each] != ROWS_FINE)
            return tt__fail(TT_ERR_PEER, "%s: rank %d could not give its rows; its error says why", rows_site, r);
    return TT_OK;
}

/* Gather `row` elements for each row of parameter k from all ranks, in their order. */
static tt_status gather_rows(const rows_exchange *e, size_t k, const tt_tensor *own, int64_t row, tt_tensor *all) {
    const int64_t each = 1 + (int64_t)e->count;
    int64_t at = 0;
    for (int r = 0; r < e->world; r++) {
        e->offsets[r] = at;
        e->counts[r] = e->told[r * each + 1 + (int64_t)k] * row;
        at += e->counts[r];
    }
    const tt_device *device = tt__device_of(all);
    if (own && !(own = tt_contiguous(tt_to_device((tt_tensor *)(uintptr_t)own, device))))
        return tt_last_status();
    return tt_all_gather_v_with(TT_ARGS(tt_all_gather_v_args, e->d->group, own ? own->data : all->data, all->data,
                                        e->counts, e->offsets, all->dtype, .file = rows_site, .device = device->type,
                                        .device_index = device->index,
                                        .stream = device->queue ? tt_device_stream(device) : NULL));
}

static tt_status average_one(const rows_exchange *e, size_t k) {
    const tt__ddp_slot *s = e->slots[k];
    const tt_tensor *x = s->parameter;
    const tt_device *at = tt__group_takes(e->d->group, TT_DEVICE_CPU) ? &tt__cpu_device : tt__device_of(x);
    const int64_t columns = x->shape.dim[1];
    int64_t rows = 0;
    for (int r = 0; r < e->world; r++)
        rows += e->told[r * (1 + (int64_t)e->count) + 1 + (int64_t)k];
    tt_tensor *index = tt__tensor_new_on(rows_site, at, TT_SHAPE(rows), TT_I64, NULL);
    tt_tensor *values = index ? tt__tensor_new_on(rows_site, at, TT_SHAPE(rows, columns), x->dtype, NULL) : NULL;
    if (!values)
        return tt_last_status();
    TT__TRY(gather_rows(e, k, s->gives ? tt_sparse_grad_indices(x) : NULL, 1, index));
    TT__TRY(gather_rows(e, k, s->gives ? tt_sparse_grad_values(x) : NULL, columns, values));
    tt_tensor *sums = NULL, *numbers = NULL;
    TT__TRY(tt__rows_coalesce(rows_site, index, values, -1, &numbers, &sums));
    numbers = tt_to_device(numbers, tt__device_of(x));
    sums = numbers ? tt_to_device(sums, tt__device_of(x)) : NULL;
    if (!sums)
        return tt_last_status();
    return tt__leaf_set_rows(s->parameter, numbers, sums);
}

static tt_status run_exchange(rows_exchange *e) {
    TT__TRY(tell_counts(e, prepare_rows(e)));
    tt_status status = TT_OK;
    for (size_t k = 0; k < e->count && !status; k++) {
        TT_AUTO_SCOPE;
        status = average_one(e, k);
    }
    return status;
}

tt_status tt__ddp_average_rows(tt__ddp *d) {
    const size_t count = list_used_rows(d, NULL);
    if (count == 0)
        return TT_OK;
    rows_exchange e;
    tt_status status = make_exchange(d, count, &e);
    if (!status)
        status = run_exchange(&e);
    end_exchange(&e);
    if (status)
        tt__reducer_abandon(d->reducer, status); /* the others may wait in the next call */
    return status;
}
