#include "optim/optimizer.h"

#include "base/error.h"
#include "tensor/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tt_optimizer {
    const tt__optimizer_class *cls;
    void *options;
    int slots;
    size_t count;
    tt_tensor **params; /* borrowed */
    tt_tensor **state;  /* count * slots, parameter by parameter; NULL: none yet */
    char **names;       /* of the state, in the same order */
    /* The state dict: those that exist. */
    const char **dict_names;
    tt_tensor **dict_tensors;
};

void tt_optimizer_free(tt_optimizer *optimizer) {
    if (!optimizer)
        return;
    size_t n = optimizer->count * (size_t)optimizer->slots;
    for (size_t i = 0; i < n && optimizer->state; i++)
        tt__tensor_disown(optimizer->state[i]);
    for (size_t i = 0; i < n && optimizer->names; i++)
        free(optimizer->names[i]);
    free(optimizer->options);
    free(optimizer->params);
    free(optimizer->state);
    free(optimizer->names);
    free(optimizer->dict_names);
    free(optimizer->dict_tensors);
    free(optimizer);
}

static bool make_names(tt_optimizer *o) {
    for (size_t i = 0; i < o->count; i++)
        for (int s = 0; s < o->slots; s++)
            if (asprintf(&o->names[i * (size_t)o->slots + (size_t)s], "state.%zu.%s", i, o->cls->slot_names[s]) < 0) {
                o->names[i * (size_t)o->slots + (size_t)s] = NULL;
                return false;
            }
    return true;
}

static bool allocate(tt_optimizer *o, tt_named_tensors params, const void *options, size_t size) {
    size_t n = o->count * (size_t)o->slots + 1; /* never 0 */
    o->options = malloc(size);
    o->params = calloc(o->count, sizeof *o->params);
    o->state = calloc(n, sizeof *o->state);
    o->names = calloc(n, sizeof *o->names);
    o->dict_names = calloc(n, sizeof *o->dict_names);
    o->dict_tensors = calloc(n, sizeof *o->dict_tensors);
    if (!o->options || !o->params || !o->state || !o->names || !o->dict_names || !o->dict_tensors)
        return false;
    memcpy(o->options, options, size);
    memcpy(o->params, params.tensors, o->count * sizeof *o->params);
    return make_names(o);
}

tt_optimizer *tt__optimizer_new(const tt__optimizer_class *cls, tt_named_tensors params, int slots, const void *options,
                                size_t size) {
    if (params.count == 0 && !params.tensors && tt_last_status())
        return NULL; /* the list of a failed object: its error stays */
    if (params.count == 0)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected at least one parameter, got an empty list", cls->name);
    for (size_t i = 0; i < params.count; i++)
        if (!params.tensors[i] || !tt__is_float(params.tensors[i]->dtype))
            return tt__fail_null(TT_ERR_DTYPE, "%s: expected parameters f32 or f64, got number %zu %s", cls->name, i,
                                 TT__DESCRIBE(params.tensors[i]));
    tt_optimizer *o = calloc(1, sizeof *o);
    if (o) {
        o->cls = cls;
        o->slots = slots;
        o->count = params.count;
    }
    if (!o || !allocate(o, params, options, size)) {
        tt_optimizer_free(o);
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for %zu parameters", cls->name, params.count);
    }
    return o;
}

const void *tt__optimizer_options(const tt_optimizer *optimizer) { return optimizer->options; }

/* ---- a step ---- */

/* State lives with the optimizer, whatever scope is open. */
static tt_tensor *new_state(const tt_tensor *like) {
    tt_tensor *x = tt__tensor_new("tt_optimizer", like->shape, like->dtype);
    return x && !tt__tensor_adopt(x, "an optimizer") ? x : NULL;
}

static tt_status prepare_state(tt_optimizer *o, size_t i, tt__update *u) {
    for (int s = 0; s < o->slots; s++) {
        tt_tensor **slot = &o->state[i * (size_t)o->slots + (size_t)s];
        u->fresh[s] = !*slot;
        if (!*slot)
            *slot = new_state(o->params[i]);
        if (!*slot)
            return tt_last_status();
        u->state[s] = (*slot)->data;
    }
    return TT_OK;
}

static tt_status update(tt_optimizer *o, size_t i, const tt_tensor *grad) {
    tt_tensor *param = o->params[i];
    tt__update u = {.dtype = param->dtype, .n = param->numel, .g = grad->data};
    TT__TRY(prepare_state(o, i, &u));
    tt_tensor *flat = param->contiguous ? param : tt__clone_contiguous("tt_optimizer_step", param);
    if (!flat)
        return tt_last_status();
    u.p = flat->data;
    o->cls->update(o, &u);
    tt__storage_touch(param->storage);
    if (flat != param) {
        TT__TRY(tt__copy_out("tt_optimizer_step", param, flat));
        if (flat->owner == TT__OWNER_CALLER)
            tt_tensor_free(flat);
    }
    return TT_OK;
}

tt_status tt_optimizer_step(tt_optimizer *optimizer) {
    if (!optimizer)
        return tt__fail(TT_ERR_INVALID, "tt_optimizer_step: the optimizer is NULL");
    for (size_t i = 0; i < optimizer->count; i++) {
        const tt_tensor *grad = tt_grad(optimizer->params[i]);
        if (!grad)
            continue;
        tt_tensor *flat = tt__contiguous_begin("tt_optimizer_step", grad);
        tt_status status = flat ? update(optimizer, i, flat) : tt_last_status();
        tt__contiguous_done(flat, grad);
        TT__TRY(status);
    }
    return TT_OK;
}

void tt_optimizer_zero_grad(tt_optimizer *optimizer) {
    for (size_t i = 0; optimizer && i < optimizer->count; i++)
        tt_zero_grad(optimizer->params[i]);
}

/* ---- state ---- */

tt_named_tensors tt_optimizer_state_dict(tt_optimizer *optimizer) {
    tt_named_tensors dict = {.count = 0};
    if (!optimizer)
        return dict;
    for (size_t i = 0; i < optimizer->count * (size_t)optimizer->slots; i++) {
        if (!optimizer->state[i])
            continue;
        optimizer->dict_names[dict.count] = optimizer->names[i];
        optimizer->dict_tensors[dict.count++] = optimizer->state[i];
    }
    dict.names = optimizer->dict_names;
    dict.tensors = optimizer->dict_tensors;
    return dict;
}

static const char load[] = "tt_optimizer_load_state_dict";

static const tt_tensor *find(tt_named_tensors list, const char *name) {
    for (size_t i = 0; i < list.count; i++)
        if (!strcmp(list.names[i], name))
            return list.tensors[i];
    return NULL;
}

/* The parameter whose state has this name; NULL if none. */
static const tt_tensor *param_of(const tt_optimizer *o, const char *name) {
    for (size_t i = 0; i < o->count * (size_t)o->slots; i++)
        if (!strcmp(o->names[i], name))
            return o->params[i / (size_t)o->slots];
    return NULL;
}

static tt_status check_entry(const tt_optimizer *o, tt_named_tensors state, size_t i) {
    const char *name = state.names[i];
    const tt_tensor *x = state.tensors[i], *param = param_of(o, name);
    if (!param)
        return tt__fail(TT_ERR_NOT_FOUND,
                        "%s: unexpected entry \"%s\": this %s of %zu parameters has no such state (was it saved with "
                        "other options, such as momentum?)",
                        load, name, o->cls->name, o->count);
    if (x != find(state, name))
        return tt__fail(TT_ERR_INVALID, "%s: entry \"%s\" comes twice", load, name);
    if (x->dtype != param->dtype || !tt__shape_equal(&x->shape, &param->shape))
        return tt__fail(x->dtype != param->dtype ? TT_ERR_DTYPE : TT_ERR_SHAPE, "%s: \"%s\": expected %s, got %s", load,
                        name, TT__DESCRIBE(param), TT__DESCRIBE(x));
    return TT_OK;
}

/* Slots that the state has get memory, before any value changes. */
static tt_status make_slots(tt_optimizer *o, tt_named_tensors state, tt_tensor **made) {
    for (size_t i = 0; i < o->count * (size_t)o->slots; i++) {
        if (!find(state, o->names[i]))
            continue;
        made[i] = new_state(o->params[i / (size_t)o->slots]);
        if (!made[i])
            return tt_last_status();
        TT__TRY(tt__copy_out(load, made[i], find(state, o->names[i])));
    }
    return TT_OK;
}

tt_status tt_optimizer_load_state_dict(tt_optimizer *optimizer, tt_named_tensors state) {
    if (!optimizer)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer is NULL", load);
    for (size_t i = 0; i < state.count; i++)
        TT__TRY(check_entry(optimizer, state, i));
    size_t n = optimizer->count * (size_t)optimizer->slots;
    tt_tensor **made = calloc(n + 1, sizeof *made);
    if (!made)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu tensors", load, n);
    tt_status status = make_slots(optimizer, state, made);
    for (size_t i = 0; i < n; i++) { /* the loser of old and new goes */
        tt_tensor *old = optimizer->state[i];
        optimizer->state[i] = status ? old : made[i];
        tt__tensor_disown(status ? made[i] : old);
    }
    free(made);
    return status;
}
