/* State as named tensors, and back. */
#include "base/error.h"
#include "base/hash.h"
#include "optim/optimizer.h"
#include "tensor/core/named_tensors.h"

#include <stdlib.h>
#include <string.h>

/* What entries of master parameters are called. */
#define MASTER "master_param"

/* ---- saving ---- */

static tt_status add_param_state(tt__dict *dict, const tt__optimizer_class *cls, const tt__optim_group *group,
                                 size_t i) {
    const int64_t steps = group->state.steps[i];
    if (group->params[i].low)
        TT__TRY(
            tt__dict_add(dict, group->params[i].tensor, "state.%lld." MASTER, (long long)group->first + (long long)i));
    if (cls->counts_steps && steps) {
        tt_tensor *copy = tt_from_data(&steps, TT_SCALAR, TT_I64);
        TT__TRY(tt__dict_add_own(dict, copy, "state.%lld.step", (long long)group->first + (long long)i));
    }
    for (int s = 0; s < cls->slots; s++) {
        tt_tensor *slot = group->state.slot[i * (size_t)cls->slots + (size_t)s];
        if (slot && tt__optim_uses(cls, group->option, s))
            TT__TRY(
                tt__dict_add(dict, slot, "state.%lld.%s", (long long)group->first + (long long)i, cls->slot_names[s]));
    }
    return TT_OK;
}

/* Make the numbers of the group's parameters, i64. */
static tt_tensor *param_numbers(const tt__optim_group *group) {
    tt_tensor *numbers = tt_empty(TT_SHAPE((int64_t)group->count), TT_I64);
    int64_t *number = tt_tensor_i64(numbers);
    for (size_t i = 0; number && i < group->count; i++)
        number[i] = group->first + (int64_t)i;
    return numbers;
}

static tt_status add_options(tt__dict *dict, const tt__optimizer_class *cls, const tt__optim_group *group, size_t g) {
    for (int i = 0; i < cls->options; i++) {
        tt_tensor *copy = tt_full(TT_SCALAR, TT_F64, group->option[i]);
        TT__TRY(tt__dict_add_own(dict, copy, "param_groups.%zu.%s", g, cls->option_names[i]));
    }
    tt_tensor *numbers = param_numbers(group);
    return tt__dict_add_own(dict, numbers, "param_groups.%zu.params", g);
}

static tt_status dict_fill(tt__dict *dict, const tt_optimizer *o) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++)
            TT__TRY(add_param_state(dict, o->cls, &o->groups[g], i));
    for (size_t g = 0; g < o->group_count; g++)
        TT__TRY(add_options(dict, o->cls, &o->groups[g], g));
    return TT_OK;
}

const tt_named_tensors *tt__optim_own_state_dict(tt_optimizer *optimizer) {
    size_t room = 0;
    for (size_t g = 0; g < optimizer->group_count; g++)
        room += optimizer->groups[g].count * ((size_t)optimizer->cls->slots + 2) + (size_t)optimizer->cls->options + 1;
    tt__dict *dict = &optimizer->dict;
    tt_status status = tt__dict_init(dict, "tt_optimizer_state_dict", room);
    return tt__dict_finish(dict, status ? status : dict_fill(dict, optimizer));
}

const tt_named_tensors *tt_optimizer_state_dict(tt_optimizer *optimizer) {
    if (!optimizer)
        return NULL;
    return optimizer->shards ? optimizer->shards->state_dict(optimizer->shards_user)
                             : tt__optim_own_state_dict(optimizer);
}

/* ---- loading ---- */

static const char who[] = "tt_optimizer_load_state_dict";

/* A group read from a state dict. All groups are read before the optimizer changes. */
typedef struct loaded_group {
    tt__optim_state state;
    double option[TT__OPTIM_OPTIONS];
    const tt_tensor **masters; /* of each parameter, borrowed; NULL: not given */
} loaded_group;

static tt_status check_tensor_like(const char *name, const tt_tensor *expected, const tt_tensor *x) {
    const tt_shape shape = tt_tensor_shape(x), wanted = tt_tensor_shape(expected);
    const bool same_dtype = tt_tensor_dtype(x) == tt_tensor_dtype(expected);
    if (same_dtype && tt__shape_equal(&shape, &wanted))
        return TT_OK;
    return tt__fail(same_dtype ? TT_ERR_SHAPE : TT_ERR_DTYPE, "%s: \"%s\": expected %s, got %s", who, name,
                    TT__DESCRIBE(expected), TT__DESCRIBE(x));
}

/* Read the one element of an entry. */
static tt_status load_number(const char *name, const tt_tensor *x, double *value) {
    if (tt_tensor_numel(x) != 1)
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected one number, got %s", who, name, TT__DESCRIBE(x));
    return tt_item(x, value);
}

static tt_status load_step(loaded_group *to, size_t i, const char *name, const tt_tensor *x) {
    double step = 0;
    TT__TRY(load_number(name, x, &step));
    if (!(step >= 0 && step <= 0x1p53) || step != (double)(int64_t)step)
        return tt__fail(TT_ERR_INVALID, "%s: \"%s\": expected a number of steps, got %g", who, name, step);
    to->state.steps[i] = (int64_t)step;
    return TT_OK;
}

static tt_status load_slot(const tt_optimizer *o, const tt__optim_group *group, loaded_group *to, size_t i, int slot,
                           const char *name, const tt_tensor *x) {
    TT__TRY(check_tensor_like(name, group->params[i].tensor, x));
    tt_tensor *view = tt__optim_state_slot(o->cls, group, &to->state, i, slot);
    return view ? tt_copy(view, x) : tt_last_status();
}

/* Read the number at *text, which is moved behind the dot after it; -1: none. */
static int64_t take_number(const char **text) {
    char *end;
    if (**text < '0' || **text > '9')
        return -1;
    long long number = strtoll(*text, &end, 10);
    if (*end != '.')
        return -1;
    *text = end + 1;
    return number;
}

static tt_status fail_unexpected(const tt_optimizer *o, const char *name) {
    const tt__optim_group *last = &o->groups[o->group_count - 1];
    return tt__fail(TT_ERR_NOT_FOUND,
                    "%s: unexpected entry \"%s\": this %s of %zu groups and %lld parameters has no such state (was it "
                    "saved with other options, such as momentum?)",
                    who, name, o->cls->name, o->group_count, (long long)(last->first + (int64_t)last->count));
}

/* "state.I.NAME" */
static tt_status load_state_entry(const tt_optimizer *o, loaded_group *to, const char *name, const tt_tensor *x) {
    const char *rest = name + strlen("state.");
    int64_t number = take_number(&rest);
    size_t g = 0;
    while (g < o->group_count && number >= o->groups[g].first + (int64_t)o->groups[g].count)
        g++;
    if (number < 0 || g == o->group_count)
        return fail_unexpected(o, name);
    size_t i = (size_t)(number - o->groups[g].first);
    if (o->cls->counts_steps && !strcmp(rest, "step"))
        return load_step(&to[g], i, name, x);
    if (o->groups[g].params[i].low && !strcmp(rest, MASTER)) {
        to[g].masters[i] = x;
        return check_tensor_like(name, o->groups[g].params[i].tensor, x);
    }
    for (int s = 0; s < o->cls->slots; s++)
        if (!strcmp(rest, o->cls->slot_names[s]) && tt__optim_uses(o->cls, to[g].option, s))
            return load_slot(o, &o->groups[g], &to[g], i, s, name, x);
    return fail_unexpected(o, name);
}

static tt_status check_params(const tt__optim_group *group, const char *name, const tt_tensor *x) {
    tt_tensor *expected = tt__optim_hold(param_numbers(group));
    if (!expected)
        return tt_last_status();
    tt_status status = TT_OK;
    if (!tt_equal(expected, x))
        status = tt__fail(TT_ERR_INVALID,
                          "%s: \"%s\": expected the numbers %lld to %lld, which the group has here, got "
                          "%s with others",
                          who, name, (long long)group->first, (long long)group->first + (long long)group->count - 1,
                          TT__DESCRIBE(x));
    tt__tensor_disown(expected);
    return status;
}

/* "param_groups.G.NAME" */
static tt_status load_option_entry(const tt_optimizer *o, loaded_group *to, const char *name, const tt_tensor *x) {
    const char *rest = name + strlen("param_groups.");
    int64_t g = take_number(&rest);
    double value = 0;
    if (g < 0 || g >= (int64_t)o->group_count)
        return fail_unexpected(o, name);
    if (!strcmp(rest, "params"))
        return check_params(&o->groups[g], name, x);
    TT__TRY(load_number(name, x, &value));
    return tt__optim_option_put(who, o->cls, to[g].option, rest, value);
}

static bool is_option(const char *name) { return !strncmp(name, "param_groups.", strlen("param_groups.")); }

/* Load options. They come before state, because they determine the slots. */
static tt_status load_options(const tt_optimizer *o, loaded_group *to, const tt_named_tensors *state) {
    for (int64_t i = 0; i < state->count; i++)
        if (is_option(state->names[i]))
            TT__TRY(load_option_entry(o, to, state->names[i], state->tensors[i]));
    for (size_t g = 0; g < o->group_count; g++)
        TT__TRY(tt__optim_check_options(who, o->cls, to[g].option));
    return TT_OK;
}

/* Check that a parameter that has some of its state has all that its options need. */
static tt_status check_complete(const tt_optimizer *o, const loaded_group *to, size_t g, size_t i) {
    int expected = o->cls->counts_steps, found = to[g].state.steps[i] != 0;
    const char *missing = found < expected ? "step" : NULL;
    for (int s = 0; s < o->cls->slots; s++) {
        bool used = tt__optim_uses(o->cls, to[g].option, s),
             there = to[g].state.slot[i * (size_t)o->cls->slots + (size_t)s];
        expected += used;
        found += there;
        if (used && !there)
            missing = o->cls->slot_names[s];
    }
    if (found == 0 || found == expected)
        return TT_OK;
    return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"state.%lld.%s\" is missing, as the parameter has other state", who,
                    (long long)o->groups[g].first + (long long)i, missing);
}

/* Check that no name comes twice. */
static tt_status check_once(const tt_named_tensors *state) {
    tt__name_map names = {0};
    tt_status status = TT_OK;
    if (!tt__name_map_reserve(&names, (size_t)state->count))
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld names", who, (long long)state->count);
    for (int64_t i = 0; i < state->count && !status; i++) {
        if (tt__name_map_get(&names, state->names[i], "") >= 0)
            status = tt__fail(TT_ERR_INVALID, "%s: entry \"%s\" comes twice", who, state->names[i]);
        tt__name_map_put(&names, state->names[i], i);
    }
    tt__name_map_free(&names);
    return status;
}

static tt_status load_states(const tt_optimizer *o, loaded_group *to, const tt_named_tensors *state) {
    TT__TRY(check_once(state));
    for (int64_t i = 0; i < state->count; i++) {
        const char *name = state->names[i];
        if (is_option(name))
            continue;
        if (strncmp(name, "state.", strlen("state.")))
            return fail_unexpected(o, name);
        TT__TRY(load_state_entry(o, to, name, state->tensors[i]));
    }
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++)
            TT__TRY(check_complete(o, to, g, i));
    return TT_OK;
}

static tt_status init_loaded(const tt_optimizer *o, loaded_group *to) {
    for (size_t g = 0; g < o->group_count; g++) {
        memcpy(to[g].option, o->groups[g].option, sizeof to[g].option);
        TT__TRY(tt__optim_state_init(o->cls, &o->groups[g], &to[g].state));
        to[g].masters = calloc(o->groups[g].count + 1, sizeof *to[g].masters);
        if (!to[g].masters)
            return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu parameters", who, o->groups[g].count);
    }
    return TT_OK;
}

/* Exchange old and new state. */
static void take_loaded(tt_optimizer *o, loaded_group *to) {
    for (size_t g = 0; g < o->group_count; g++) {
        tt__optim_state old = o->groups[g].state;
        o->groups[g].state = to[g].state;
        to[g].state = old;
        memcpy(o->groups[g].option, to[g].option, sizeof to[g].option);
    }
}

/* Copy the state dict's master parameters, whose shapes and types were checked. */
static tt_status take_masters(tt_optimizer *o, const loaded_group *to) {
    o->masters_begun = false;
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++)
            if (to[g].masters[i])
                TT__TRY(tt_copy(o->groups[g].params[i].tensor, to[g].masters[i]));
    return TT_OK;
}

static tt_status load_groups(tt_optimizer *o, loaded_group *to, const tt_named_tensors *state) {
    TT__TRY(init_loaded(o, to));
    TT__TRY(load_options(o, to, state));
    TT__TRY(load_states(o, to, state));
    take_loaded(o, to);
    return take_masters(o, to);
}

tt_status tt__optim_load_own_state_dict(tt_optimizer *optimizer, const tt_named_tensors *state) {
    loaded_group *to = calloc(optimizer->group_count, sizeof *to);
    if (!to)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu groups", who, optimizer->group_count);
    int scope = tt_scope_begin(); /* ends what state on a device is copied from */
    tt_status status = scope ? load_groups(optimizer, to, state) : tt_last_status();
    tt_scope_end(scope);
    for (size_t g = 0; g < optimizer->group_count; g++) {
        tt__optim_state_free(optimizer->cls, &optimizer->groups[g], &to[g].state);
        free(to[g].masters);
    }
    free(to);
    return status;
}

tt_status tt_optimizer_load_state_dict(tt_optimizer *optimizer, const tt_named_tensors *state) {
    if (!optimizer || !state) /* the call that gave NULL has usually recorded why */
        return tt_last_status()
                   ? tt_last_status()
                   : tt__fail(TT_ERR_INVALID, "%s: the %s is NULL", who, optimizer ? "state" : "optimizer");
    TT__TRY(tt__named_tensors_check(who, state, true));
    return optimizer->shards ? optimizer->shards->load_state_dict(optimizer->shards_user, state)
                             : tt__optim_load_own_state_dict(optimizer, state);
}
