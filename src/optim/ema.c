/* Exponential moving averages of parameters. */
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "optim/clipping/clip.h"
#include "optim/dict.h"
#include "tensor/core/named_tensors.h"
#include "tensor/device/capture.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/optim.h>

typedef struct ema_entry {
    char *name;
    tt_tensor *param;   /* watched */
    tt_tensor *average; /* contiguous */
    tt_tensor *stored;  /* the parameter's values, while `is_stored` */
} ema_entry;

struct tt_ema {
    double decay;
    bool warm_up;
    bool is_stored;
    int64_t n_averaged; /* updates */
    size_t count;
    ema_entry *entries;
    tt__dict dict; /* the last state dict that was asked for */
};

/* ---- making ---- */

static tt_tensor *copy_of(const tt_tensor *x) {
    tt_tensor *copy = tt__empty_beside("tt_ema_new", x, x->shape, x->dtype);
    return copy && !tt_copy(copy, x) ? tt__optim_hold(copy) : NULL;
}

static tt_status ema_add(tt_ema *ema, const char *name, tt_tensor *x) {
    ema_entry *entry = &ema->entries[ema->count++];
    *entry = (ema_entry){.name = strdup(name), .param = tt__tensor_watch(x)};
    if (!entry->name)
        return tt__fail(TT_ERR_MEMORY, "tt_ema_new: no memory for a name");
    entry->average = copy_of(x);
    return entry->average ? TT_OK : tt_last_status();
}

static tt_status ema_fill(tt_ema *ema, const tt_named_tensors *params) {
    ema->entries = calloc((size_t)params->count + 1, sizeof *ema->entries);
    if (!ema->entries)
        return tt__fail(TT_ERR_MEMORY, "tt_ema_new: no memory for %lld averages", (long long)params->count);
    tt_status status = TT_OK;
    for (int64_t i = 0; i < params->count && !status; i++)
        status = ema_add(ema, params->names[i], params->tensors[i]);
    return status;
}

static void ema_end(tt_ema *ema) {
    for (size_t i = 0; i < ema->count; i++) {
        tt__tensor_unwatch(ema->entries[i].param);
        tt__tensor_disown(ema->entries[i].average);
        tt__tensor_disown(ema->entries[i].stored);
        free(ema->entries[i].name);
    }
    tt__dict_free(&ema->dict);
    free(ema->entries);
    tt__quarantine(ema, sizeof *ema, free);
}

static tt_status check_ema(const char *who, const tt_ema_new_args *a) {
    if (!a->params)
        return tt__fail_argument("%s: expected a list of tensors, got NULL", who);
    TT__TRY(tt__named_tensors_check(who, a->params, true));
    if (!(a->decay >= 0 && a->decay <= 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected a decay between 0 and 1, got %g", who, a->decay);
    return TT_OK;
}

tt_ema *tt_ema_new_with(const tt_ema_new_args *args, size_t size) {
    static const char who[] = "tt_ema_new";
    tt_ema_new_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_ema(who, &a))
        return NULL;
    tt_ema *ema = calloc(1, sizeof *ema);
    if (!ema)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for an average", who);
    ema->decay = a.decay;
    ema->warm_up = a.warm_up;
    int scope = tt_scope_begin(); /* ends copies that fail half-way */
    if (scope && !ema_fill(ema, a.params)) {
        tt_scope_end(scope);
        return ema;
    }
    tt_scope_end(scope);
    ema_end(ema);
    return NULL;
}

void tt_ema_free(tt_ema *ema) {
    if (ema && !tt__freed_before("tt_ema_free", ema))
        ema_end(ema);
}

/* ---- updating ---- */

typedef struct ema_pass {
    const tt__clip_loops *loops;
    char *average;
    const char *param;
    size_t size; /* of an element */
    double decay;
} ema_pass;

static void average_block(void *user, int64_t begin, int64_t end) {
    const ema_pass *pass = user;
    const size_t at = (size_t)begin * pass->size;
    pass->loops->average(pass->average + at, pass->param + at, end - begin, pass->decay);
}

/* Has the tensor the type, shape and device that it had when the average was made? */
static tt_status check_param(const char *who, const ema_entry *entry) {
    const tt_shape now = tt_tensor_shape(entry->param), before = tt_tensor_shape(entry->average);
    if (tt_tensor_dtype(entry->param) == tt_tensor_dtype(entry->average) && tt__shape_equal(&now, &before) &&
        tt_tensor_device(entry->param) == tt_tensor_device(entry->average))
        return TT_OK;
    return tt__fail(TT_ERR_STATE, "%s: \"%s\" was %s on %s when the average was made, and is %s on %s now", who,
                    entry->name, TT__DESCRIBE(entry->average), tt_device_name(tt_tensor_device(entry->average)),
                    TT__DESCRIBE(entry->param), tt_device_name(tt_tensor_device(entry->param)));
}

/* As average_block(), on any device: each of the three results is rounded. */
static tt_status average_far(tt_tensor *average, const tt_tensor *param, double decay) {
    static const char who[] = "tt_ema_update";
    tt_tensor *rest = tt__empty_like(who, average);
    tt_status status = rest ? tt__scale_out(who, rest, param, 1 - decay) : tt_last_status();
    if (!status)
        status = tt__scale_out(who, average, average, decay);
    if (!status)
        status = tt__add_out(who, average, average, rest);
    tt__abandon(rest);
    return status;
}

static tt_status update_entry(const tt_ema *ema, ema_entry *entry, double decay) {
    const tt__clip_loops *loops = tt__clip_loops_of(entry->param->dtype);
    if (!loops || ema->n_averaged == 0)
        return tt_copy(entry->average, entry->param);
    if (!tt__device_is_host(tt_tensor_device(entry->param)))
        return average_far(entry->average, entry->param, decay);
    const tt_tensor *flat = tt_contiguous(entry->param);
    if (!flat)
        return tt_last_status();
    ema_pass pass = {.loops = loops,
                     .average = entry->average->data,
                     .param = flat->data,
                     .size = tt_dtype_size(flat->dtype),
                     .decay = decay};
    tt__parallel_for(flat->numel, TT__CLIP_BLOCK, average_block, &pass);
    return TT_OK;
}

static double decay_now(const tt_ema *ema) {
    const double n = (double)ema->n_averaged, growing = (1 + n) / (10 + n);
    return ema->warm_up && growing < ema->decay ? growing : ema->decay;
}

static tt_status check_all_params(const char *who, const tt_ema *ema) {
    if (!ema)
        return tt__fail(TT_ERR_INVALID, "%s: the average is NULL", who);
    for (size_t i = 0; i < ema->count; i++)
        TT__TRY(check_param(who, &ema->entries[i]));
    return TT_OK;
}

tt_status tt_ema_update(tt_ema *ema) {
    TT__TRY(tt__capture_refuse("tt_ema_update", NULL));
    TT__TRY(check_all_params("tt_ema_update", ema));
    int scope = tt_scope_begin(); /* ends copies of parameters in other layouts */
    if (!scope)
        return tt_last_status();
    const double decay = decay_now(ema);
    tt_status status = TT_OK;
    for (size_t i = 0; i < ema->count && !status; i++)
        status = update_entry(ema, &ema->entries[i], decay);
    tt_scope_end(scope);
    ema->n_averaged += !status;
    return status;
}

/* ---- to the parameters and back ---- */

tt_status tt_ema_copy_to(tt_ema *ema) {
    TT__TRY(check_all_params("tt_ema_copy_to", ema));
    for (size_t i = 0; i < ema->count; i++)
        TT__TRY(tt_copy(ema->entries[i].param, ema->entries[i].average));
    return TT_OK;
}

tt_status tt_ema_store(tt_ema *ema) {
    TT__TRY(check_all_params("tt_ema_store", ema));
    ema->is_stored = false;
    for (size_t i = 0; i < ema->count; i++) {
        ema_entry *entry = &ema->entries[i];
        if (!entry->stored)
            entry->stored = copy_of(entry->param);
        if (!entry->stored)
            return tt_last_status();
        TT__TRY(tt_copy(entry->stored, entry->param));
    }
    ema->is_stored = true;
    return TT_OK;
}

tt_status tt_ema_restore(tt_ema *ema) {
    static const char who[] = "tt_ema_restore";
    TT__TRY(check_all_params(who, ema));
    if (!ema->is_stored)
        return tt__fail(TT_ERR_STATE, "%s: nothing is stored: call tt_ema_store() before tt_ema_copy_to()", who);
    for (size_t i = 0; i < ema->count; i++)
        TT__TRY(tt_copy(ema->entries[i].param, ema->entries[i].stored));
    ema->is_stored = false;
    return TT_OK;
}

/* ---- state ---- */

#define AVERAGE "module."

static tt_status ema_save(tt_ema *ema) {
    TT__TRY(tt__dict_init(&ema->dict, "tt_ema_state_dict", ema->count + 1));
    TT__TRY(tt__dict_add_own(&ema->dict, tt_from_data(&ema->n_averaged, TT_SCALAR, TT_I64), "n_averaged"));
    for (size_t i = 0; i < ema->count; i++)
        TT__TRY(tt__dict_add(&ema->dict, ema->entries[i].average, AVERAGE "%s", ema->entries[i].name));
    return TT_OK;
}

const tt_named_tensors *tt_ema_state_dict(tt_ema *ema) {
    return ema ? tt__dict_finish(&ema->dict, ema_save(ema)) : NULL;
}

static const char load[] = "tt_ema_load_state_dict";

static const tt_tensor *find_average(const tt_named_tensors *state, const char *name) {
    for (int64_t i = 0; i < state->count; i++)
        if (!strncmp(state->names[i], AVERAGE, strlen(AVERAGE)) && !strcmp(state->names[i] + strlen(AVERAGE), name))
            return state->tensors[i];
    return NULL;
}

static tt_status check_average(const tt_named_tensors *state, const ema_entry *entry) {
    const tt_tensor *x = find_average(state, entry->name), *expected = entry->average;
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"" AVERAGE "%s\" is missing", load, entry->name);
    const tt_shape shape = tt_tensor_shape(x), wanted = tt_tensor_shape(expected);
    if (tt_tensor_dtype(x) == tt_tensor_dtype(expected) && tt__shape_equal(&shape, &wanted))
        return TT_OK;
    return tt__fail(tt_tensor_dtype(x) != tt_tensor_dtype(expected) ? TT_ERR_DTYPE : TT_ERR_SHAPE,
                    "%s: \"" AVERAGE "%s\": expected %s, got %s", load, entry->name, TT__DESCRIBE(expected),
                    TT__DESCRIBE(x));
}

static tt_status read_updates(const tt_named_tensors *state, int64_t *n) {
    const tt_tensor *x = tt_named_tensors_find(state, "n_averaged");
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"n_averaged\" is missing", load);
    if (tt_tensor_dtype(x) != TT_I64 || tt_tensor_numel(x) != 1)
        return tt__fail(TT_ERR_SHAPE, "%s: \"n_averaged\": expected one i64, got %s", load, TT__DESCRIBE(x));
    *n = *tt_tensor_i64(x);
    return *n >= 0 ? TT_OK
                   : tt__fail(TT_ERR_INVALID, "%s: \"n_averaged\": expected a number of updates, got %lld", load,
                              (long long)*n);
}

tt_status tt__ema_check_state(const tt_ema *ema, const tt_named_tensors *state) {
    int64_t updates = 0;
    TT__TRY(tt__named_tensors_check(load, state, true));
    if (state->count != (int64_t)ema->count + 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected \"n_averaged\" and %zu averages, got %lld entries", load,
                        ema->count, (long long)state->count);
    TT__TRY(read_updates(state, &updates));
    for (size_t i = 0; i < ema->count; i++)
        TT__TRY(check_average(state, &ema->entries[i]));
    return TT_OK;
}

tt_status tt_ema_load_state_dict(tt_ema *ema, const tt_named_tensors *state) {
    if (!ema || !state)
        return tt__fail_argument("%s: the %s is NULL", load, ema ? "state" : "average");
    TT__TRY(tt__ema_check_state(ema, state));
    for (size_t i = 0; i < ema->count; i++)
        TT__TRY(tt_copy(ema->entries[i].average, find_average(state, ema->entries[i].name)));
    return read_updates(state, &ema->n_averaged);
}
