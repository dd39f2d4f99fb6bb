/* Making optimizers and their groups. */
#include "optim/optimizer.h"

#include "autograd/pointer_map.h"
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/core/named_tensors.h"

#include <stdlib.h>
#include <string.h>

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

/* Note in which group a parameter and its master are. */
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

/* `group_of` finds the group of each parameter that the optimizer has. */
static tt_status add_param(const char *who, const tt_optimizer *o, tt__optim_group *group, tt_tensor *x,
                           tt__pointer_map *group_of) {
    tt_dtype dtype = tt_tensor_dtype(x);
    const bool low = x && tt__wants_master(dtype);
    int type = x ? tt__optim_type(o->cls, low ? TT_F32 : dtype) : -1;
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
    TT__TRY(o->cls->check(who, option));
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
