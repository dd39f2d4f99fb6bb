/* Making optimizers and their groups: parameters, options by name, memory for state. */
#include "optim/optimizer.h"

#include "autograd/pointer_map.h"
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/core/named_tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the memory of state: slots, flat by group and element type, and steps ---- */

static const char who[] = "tt_optimizer";

tt_status tt__optim_state_init(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state) {
    *state = (tt__optim_state){0};
    state->slot = calloc(group->count * (size_t)cls->slots + 1, sizeof(tt_tensor *));
    state->steps = calloc(group->count + 1, sizeof *state->steps);
    if (state->slot && state->steps)
        return TT_OK;
    tt__optim_state_free(cls, group, state);
    return tt__fail(TT_ERR_MEMORY, "%s: no memory for the state of %zu parameters", who, group->count);
}

void tt__optim_state_free(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state) {
    for (size_t i = 0; state->slot && i < group->count * (size_t)cls->slots; i++)
        tt__tensor_disown(state->slot[i]);
    for (int type = 0; type < TT__OPTIM_TYPES; type++)
        for (int s = 0; s < TT__OPTIM_SLOTS; s++)
            tt__tensor_disown(state->flat[type][s]);
    free(state->slot);
    free(state->steps);
    *state = (tt__optim_state){0};
}

/* Return the memory of a slot for all parameters of one type, made at first need. */
static tt_tensor *slot_memory(const tt__optim_group *group, tt__optim_state *state, const tt__optim_param *param,
                              int slot) {
    tt_tensor **flat = &state->flat[param->type][slot];
    if (!*flat)
        *flat = tt__optim_hold(
            tt_to_device(tt_zeros(TT_SHAPE(group->flat_size[param->type]), param->dtype), group->device));
    return *flat;
}

tt_tensor *tt__optim_state_slot(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state,
                                size_t param, int slot) {
    const tt__optim_param *p = &group->params[param];
    tt_tensor **view = &state->slot[param * (size_t)cls->slots + (size_t)slot];
    const tt_tensor *flat = *view ? NULL : slot_memory(group, state, p, slot);
    if (flat) {
        tt_shape shape = tt_tensor_shape(p->tensor);
        int64_t stride[TT_MAX_DIMS];
        tt__shape_strides(&shape, stride);
        *view = tt__optim_hold(tt__tensor_alias(who, flat, shape, stride, p->offset));
    }
    return *view;
}

/* ---- options of groups, by name ---- */

tt_status tt__optim_check_number(const char *who, const char *name, double value, double least) {
    if (isfinite(value) && value >= least)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected a finite %s%s, got %g", who, name, least == 0 ? " of at least 0" : "",
                    value);
}

tt_status tt__optim_check_unattended(const char *name, const tt_optimizer *o) {
    if (!o->stepper)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: tt_backward() steps this optimizer already (tt_ddp_step_in_backward()); leave the call out, "
                    "or end that first: tt_ddp_step_in_backward(ddp, NULL)",
                    name);
}

tt_status tt__optim_check_options(const char *who, const tt__optimizer_class *cls, const double *option) {
    for (int i = 0; i < cls->options; i++)
        TT__TRY(tt__optim_check_number(who, cls->option_names[i], option[i],
                                       cls->signed_option && i == cls->signed_option ? -INFINITY : 0));
    for (int i = cls->betas; cls->betas && i <= cls->betas + 1; i++)
        if (option[i] >= 1)
            return tt__fail(TT_ERR_INVALID, "%s: expected %s below 1, got %g", who, cls->option_names[i], option[i]);
    return cls->check ? cls->check(who, option) : TT_OK;
}

int tt__optim_option_index(const tt__optimizer_class *cls, const char *name) {
    for (int i = 0; name && i < cls->options; i++)
        if (!strcmp(cls->option_names[i], name))
            return i;
    return -1;
}

static int option_find(const char *who, const tt__optimizer_class *cls, const char *name) {
    int at = tt__optim_option_index(cls, name);
    if (at >= 0)
        return at;
    char known[400] = "";
    for (int i = 0; i < cls->options; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", cls->option_names[i]);
    }
    tt__fail(TT_ERR_NOT_FOUND, "%s: %s has no option \"%s\"; it has %s", who, cls->name, name ? name : "NULL", known);
    return -1;
}

tt_status tt__optim_option_put(const char *who, const tt__optimizer_class *cls, double *option, const char *name,
                               double value) {
    int at = option_find(who, cls, name);
    if (at < 0)
        return TT_ERR_NOT_FOUND;
    option[at] = value;
    return TT_OK;
}

int64_t tt_optimizer_group_count(const tt_optimizer *optimizer) {
    return optimizer ? (int64_t)optimizer->group_count : 0;
}

const char *tt_optimizer_option_name(const tt_optimizer *optimizer, int64_t i) {
    return optimizer && i >= 0 && i < optimizer->cls->options ? optimizer->cls->option_names[i] : NULL;
}

static tt_status check_group(const char *who, const tt_optimizer *o, int64_t group) {
    if (!o)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer is NULL", who);
    if (group < 0 || group >= (int64_t)o->group_count)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: expected a group below %zu, got %lld", who, o->group_count,
                        (long long)group);
    return TT_OK;
}

tt_status tt_optimizer_get_option(const tt_optimizer *optimizer, int64_t group, const char *name, double *value) {
    static const char who[] = "tt_optimizer_get_option";
    TT__TRY(check_group(who, optimizer, group));
    int at = option_find(who, optimizer->cls, name);
    if (at < 0)
        return TT_ERR_NOT_FOUND;
    if (!value)
        return tt__fail(TT_ERR_INVALID, "%s: `value` is NULL", who);
    *value = optimizer->groups[group].option[at];
    return TT_OK;
}

/* Check that the options of `group` are possible with the new value. */
static tt_status try_option(const char *who, const tt_optimizer *o, const tt__optim_group *group, const char *name,
                            double value) {
    double option[TT__OPTIM_OPTIONS];
    memcpy(option, group->option, sizeof option);
    TT__TRY(tt__optim_option_put(who, o->cls, option, name, value));
    return tt__optim_check_options(who, o->cls, option);
}

tt_status tt_optimizer_set_option(tt_optimizer *optimizer, int64_t group, const char *name, double value) {
    static const char who[] = "tt_optimizer_set_option";
    size_t from = (size_t)group, to = from + 1;
    if (optimizer && group == TT_ALL_GROUPS) {
        from = 0;
        to = optimizer->group_count;
    } else {
        TT__TRY(check_group(who, optimizer, group));
    }
    for (size_t i = from; i < to; i++)
        TT__TRY(try_option(who, optimizer, &optimizer->groups[i], name, value));
    for (size_t i = from; i < to; i++)
        TT__TRY(tt__optim_option_put(who, optimizer->cls, optimizer->groups[i].option, name, value));
    return TT_OK;
}

/* ---- groups ---- */

static void group_free(const tt__optimizer_class *cls, tt__optim_group *group) {
    tt__optim_state_free(cls, group, &group->state);
    for (size_t i = 0; i < group->count; i++) {
        const tt__optim_param *p = &group->params[i];
        tt__tensor_unwatch(p->low ? p->low : p->tensor);
        if (p->low)
            tt__tensor_disown(p->tensor);
    }
    free(group->params);
    free(group->runs);
}

/* Note the group of a parameter and its master. */
static bool note_param(tt__pointer_map *group_of, const tt__optim_param *p, size_t group) {
    return tt__pointer_map_put(group_of, p->tensor, (int64_t)group) &&
           (!p->low || tt__pointer_map_put(group_of, p->low, (int64_t)group));
}

static bool note_groups(tt__pointer_map *group_of, const tt_optimizer *o) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++)
            if (!note_param(group_of, &o->groups[g].params[i], g))
                return false;
    return true;
}

/* Return TT__OPTIM_F32, ... if the class has a rule for this type; else -1. */
static int optim_type(const tt__optimizer_class *cls, tt_dtype dtype) {
    if (dtype == TT_F32 && cls->kernels()->f32)
        return TT__OPTIM_F32;
    return dtype == TT_F64 && cls->kernels()->f64 ? TT__OPTIM_F64 : -1;
}

/* Add x to the group. `group_of`: the group of each parameter that the optimizer has. */
static tt_status add_param(const char *who, const tt_optimizer *o, tt__optim_group *group, tt_tensor *x,
                           tt__pointer_map *group_of) {
    tt_dtype dtype = tt_tensor_dtype(x);
    const bool low = x && tt__wants_master(dtype);
    int type = x ? optim_type(o->cls, low ? TT_F32 : dtype) : -1;
    if (type < 0)
        return tt__fail(TT_ERR_DTYPE, "%s: expected parameters of floats, got number %zu %s", who, group->count,
                        TT__DESCRIBE(x));
    int64_t other = tt__pointer_map_get(group_of, x), numel = tt_tensor_numel(x);
    if (other >= 0)
        return tt__fail(TT_ERR_INVALID, "%s: parameter number %zu, %s, is in group %lld already", who, group->count,
                        TT__DESCRIBE(x), (long long)other);
    TT__TRY(tt__tensor_check_writable(who, x));
    if (group->count && tt_tensor_device(x) != group->device)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected a group on one device, got number %zu on \"%s\" and others on \"%s\"", who,
                        group->count, tt_device_name(tt_tensor_device(x)), tt_device_name(group->device));
    group->device = tt_tensor_device(x);
    tt_tensor *master = low ? tt__master_of(x) : NULL;
    if (low && !master)
        return tt_last_status();
    int64_t aligned = 64 / (int64_t)tt_dtype_size(low ? TT_F32 : dtype);
    tt__tensor_watch(x);
    group->params[group->count++] = (tt__optim_param){.tensor = low ? master : x,
                                                      .low = low ? x : NULL,
                                                      .dtype = low ? TT_F32 : dtype,
                                                      .low_dtype = dtype,
                                                      .type = type,
                                                      .numel = numel,
                                                      .offset = group->flat_size[type]};
    group->flat_size[type] += (numel + aligned - 1) / aligned * aligned;
    return note_param(group_of, &group->params[group->count - 1], o->group_count)
               ? TT_OK
               : tt__fail(TT_ERR_MEMORY, "%s: no memory for parameter number %zu", who, group->count - 1);
}

static tt_status add_params(const char *who, const tt_optimizer *o, const tt_named_tensors *params,
                            tt__optim_group *group) {
    tt__pointer_map group_of = {0};
    tt_status status = note_groups(&group_of, o) ? TT_OK
                                                 : tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld parameters", who,
                                                            (long long)params->count);
    for (int64_t i = 0; i < params->count && !status; i++)
        status = add_param(who, o, group, params->tensors[i], &group_of);
    tt__pointer_map_free(&group_of);
    return status;
}

static tt_status check_list(const char *who, const tt_named_tensors *params) {
    if (!params)
        return tt__fail_argument("%s: expected at least one parameter, got NULL", who);
    if (params->count == 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least one parameter, got an empty list", who);
    return tt__named_tensors_check(who, params, false);
}

/* Fill a group; on failure group_free() ends it. */
static tt_status group_make(const char *who, const tt_optimizer *o, const tt_named_tensors *params,
                            tt__optim_group *group) {
    group->params = calloc((size_t)params->count, sizeof *group->params);
    group->runs = calloc((size_t)params->count, sizeof *group->runs);
    if (!group->params || !group->runs)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld parameters", who, (long long)params->count);
    TT__TRY(add_params(who, o, params, group));
    return tt__optim_state_init(o->cls, group, &group->state);
}

static tt_status add_group(const char *who, tt_optimizer *o, const tt_named_tensors *params, const double *option) {
    TT__TRY(check_list(who, params));
    TT__TRY(tt__optim_check_options(who, o->cls, option));
    tt__optim_group *groups = reallocarray(o->groups, o->group_count + 1, sizeof *groups);
    if (!groups)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a group", who);
    o->groups = groups;
    tt__optim_group group = {0};
    if (o->group_count)
        group.first = groups[o->group_count - 1].first + (int64_t)groups[o->group_count - 1].count;
    memcpy(group.option, option, sizeof group.option);
    tt_status status = group_make(who, o, params, &group);
    if (status)
        group_free(o->cls, &group);
    else
        groups[o->group_count++] = group;
    return status;
}

tt_status tt_optimizer_add_param_group_with(const tt_optimizer_add_param_group_args *args, size_t size) {
    static const char who[] = "tt_optimizer_add_param_group";
    tt_optimizer_add_param_group_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.optimizer)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer is NULL", who);
    if (a.optimizer->shards)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the optimizer updates slices of parameters; add its groups where it is made (the `make` "
                        "of tt_zero_optimizer())",
                        who);
    TT__TRY(tt__optim_check_unattended(who, a.optimizer));
    double option[TT__OPTIM_OPTIONS];
    memcpy(option, a.optimizer->defaults, sizeof option);
    for (const tt_option *given = a.options; given && given->name; given++)
        TT__TRY(tt__optim_option_put(who, a.optimizer->cls, option, given->name, given->value));
    return add_group(who, a.optimizer, a.params, option);
}

/* ---- optimizers ---- */

static void optimizer_end(tt_optimizer *optimizer) {
    if (optimizer->stepper)
        optimizer->stepper->let_go(optimizer->stepper_user);
    for (size_t g = 0; g < optimizer->group_count; g++)
        group_free(optimizer->cls, &optimizer->groups[g]);
    tt__dict_free(&optimizer->dict);
    tt__dict_free(&optimizer->masters);
    if (optimizer->shards)
        optimizer->shards->destroy(optimizer->shards_user);
    free(optimizer->groups);
    tt__quarantine(optimizer, sizeof *optimizer, free);
}

tt_optimizer *tt__optimizer_new(const tt__optimizer_class *cls, const tt_named_tensors *params, const double *option) {
    tt_optimizer *o = calloc(1, sizeof *o);
    if (!o)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for an optimizer", cls->name);
    o->cls = cls;
    memcpy(o->defaults, option, (size_t)cls->options * sizeof *option);
    if (add_group(cls->name, o, params, o->defaults)) {
        optimizer_end(o);
        return NULL;
    }
    return o;
}

void tt_optimizer_free(tt_optimizer *optimizer) {
    if (optimizer && !tt__freed_before("tt_optimizer_free", optimizer))
        optimizer_end(optimizer);
}

void tt_optimizer_zero_grad(tt_optimizer *optimizer) {
    if (optimizer && optimizer->shards)
        optimizer->shards->zero_grad(optimizer->shards_user);
    for (size_t g = 0; optimizer && g < optimizer->group_count; g++)
        for (size_t i = 0; i < optimizer->groups[g].count; i++) {
            tt_zero_grad(optimizer->groups[g].params[i].tensor);
            tt_zero_grad(optimizer->groups[g].params[i].low);
        }
    if (optimizer)
        optimizer->masters_begun = false;
}
