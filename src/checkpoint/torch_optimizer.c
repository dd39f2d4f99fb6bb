/* An optimizer's state as PyTorch's Optimizer.state_dict() has it:
 *   {"state": {0: {"step": tensor, "exp_avg": tensor}, ...},
 *    "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "amsgrad": False, ..., "params": [0, 1]}]} */
#include "base/error.h"
#include "checkpoint/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest name of an entry: "param_groups.", two numbers, an option. */
enum { ENTRY = 128 };

/* Is the option a bool in PyTorch, and a number here? */
static bool is_flag(const char *option) {
    static const char *const flags[] = {"nesterov", "maximize", "amsgrad", "centered"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(option, flags[i]))
            return true;
    return false;
}

/* Return 1 or 2 for "beta1" or "beta2", which PyTorch has as a pair, "betas"; else 0. */
static int beta_of(const char *option) {
    return !strncmp(option, "beta", 4) && (option[4] == '1' || option[4] == '2') && !option[5] ? option[4] - '0' : 0;
}

/* ---- saving */

/* Make a value of a parameter's state. PyTorch's step is f32. */
static tt_value *value_of_state(const char *name, tt_tensor *x) {
    double step;
    if (strcmp(name, "step") != 0)
        return tt_value_of_tensor(x);
    if (tt_item(x, &step))
        return NULL;
    tt_tensor *copy = tt_keep(tt_full(TT_SCALAR, TT_F32, step));
    tt_value *value = tt_value_of_tensor(copy);
    tt_tensor_free(copy);
    return value;
}

/* Set entry "state.I.NAME" in the dict of parameter I, *latest. A finished dict goes into `states`. */
static tt_status add_state(tt_value *states, tt_value **latest, int64_t *number, const char *name, tt_tensor *x) {
    long long at;
    int read = 0;
    if (sscanf(name, "state.%lld.%n", &at, &read) != 1 || !read)
        return tt__fail(TT_ERR_STATE, "tt_value_of_optimizer: \"%s\" is no parameter's state", name);
    if (*latest && *number != at) {
        tt_value *whole = *latest;
        *latest = NULL;
        TT__TRY(tt_value_set_at(states, *number, whole));
    }
    *number = at;
    if (!*latest && !(*latest = tt_value_dict()))
        return tt_last_status();
    return tt_value_set(*latest, name + read, value_of_state(name + read, x));
}

/* Make the dict of all states. Entries of one parameter follow each other. */
static tt_value *value_of_states(const tt_named_tensors *entries) {
    tt_value *states = tt_value_dict(), *latest = NULL;
    int64_t number = 0;
    tt_status status = states ? TT_OK : tt_last_status();
    for (int64_t i = 0; i < entries->count && !status; i++)
        if (!strncmp(entries->names[i], "state.", 6))
            status = add_state(states, &latest, &number, entries->names[i], entries->tensors[i]);
    if (!status && latest) {
        tt_value *whole = latest;
        latest = NULL;
        status = tt_value_set_at(states, number, whole);
    }
    tt_value_free(latest);
    if (!status)
        return states;
    tt_value_free(states);
    return NULL;
}

static tt_value *value_of_betas(double first, double second) {
    tt_value *pair = tt_value_tuple();
    if (pair && !tt_value_append(pair, tt_value_of_float(first)) && !tt_value_append(pair, tt_value_of_float(second)))
        return pair;
    tt_value_free(pair);
    return NULL;
}

static tt_value *value_of_numbers(const tt_tensor *numbers) {
    tt_value *list = tt_value_list();
    const int64_t *at = tt_tensor_i64((tt_tensor *)(uintptr_t)numbers);
    for (int64_t i = 0; list && i < tt_tensor_numel(numbers); i++)
        if (tt_value_append(list, tt_value_of_int(at[i]))) {
            tt_value_free(list);
            return NULL;
        }
    return list;
}

static tt_status add_option(tt_value *group, tt_optimizer *optimizer, int64_t g, const char *name) {
    double value, second;
    TT__TRY(tt_optimizer_get_option(optimizer, g, name, &value));
    if (beta_of(name) == 2)
        return TT_OK;
    if (beta_of(name) == 1) {
        TT__TRY(tt_optimizer_get_option(optimizer, g, "beta2", &second));
        return tt_value_set(group, "betas", value_of_betas(value, second));
    }
    return tt_value_set(group, name, is_flag(name) ? tt_value_of_bool(value != 0) : tt_value_of_float(value));
}

static tt_value *value_of_group(tt_optimizer *optimizer, const tt_named_tensors *entries, int64_t g) {
    char params[ENTRY];
    tt_value *group = tt_value_dict();
    tt_status status = group ? TT_OK : tt_last_status();
    for (int64_t i = 0; !status && tt_optimizer_option_name(optimizer, i); i++)
        status = add_option(group, optimizer, g, tt_optimizer_option_name(optimizer, i));
    snprintf(params, sizeof params, "param_groups.%lld.params", (long long)g);
    if (!status)
        status = tt_value_set(group, "params", value_of_numbers(tt_named_tensors_find(entries, params)));
    if (!status)
        return group;
    tt_value_free(group);
    return NULL;
}

static tt_value *value_of_groups(tt_optimizer *optimizer, const tt_named_tensors *entries) {
    tt_value *groups = tt_value_list();
    for (int64_t g = 0; groups && g < tt_optimizer_group_count(optimizer); g++)
        if (tt_value_append(groups, value_of_group(optimizer, entries, g))) {
            tt_value_free(groups);
            return NULL;
        }
    return groups;
}

tt_value *tt_value_of_optimizer(tt_optimizer *optimizer) {
    const tt_named_tensors *entries = tt_optimizer_state_dict(optimizer);
    if (!optimizer)
        return tt__fail_null(TT_ERR_INVALID, "tt_value_of_optimizer: the optimizer is NULL");
    tt_value *value = entries ? tt_value_dict() : NULL;
    if (value && !tt_value_set(value, "state", value_of_states(entries)) &&
        !tt_value_set(value, "param_groups", value_of_groups(optimizer, entries)))
        return value;
    tt_value_free(value);
    return NULL;
}

/* ---- loading */

static const char who[] = "tt_optimizer_load_value";

static tt_status expected(const char *what, const char *where) {
    return tt__fail(TT_ERR_INVALID, "%s: expected %s in \"%s\", as torch.optim.Optimizer.state_dict() has", who, what,
                    where);
}

/* Add an entry that was made for it, which the list then owns. */
static tt_status add_made(tt__entries *to, const char *name, tt_tensor *x) {
    char *copy = x ? strdup(name) : NULL;
    if (!copy) {
        tt_tensor_free(x);
        return x ? tt__fail(TT_ERR_MEMORY, "%s: no memory for \"%s\"", who, name) : tt_last_status();
    }
    to->made[to->count] = copy;
    tt__entries_add(to, copy, x);
    return TT_OK;
}

/* Add an entry for a number, a bool or a tensor. */
static tt_status add_loaded_number(tt__entries *to, const char *name, const tt_value *value) {
    double number = 0;
    bool flag = false;
    if (tt_value_typeof(value) == TT_VALUE_TENSOR)
        return add_made(to, name, tt_keep(tt_clone(tt_value_tensor(value))));
    if (tt_value_typeof(value) == TT_VALUE_BOOL)
        TT__TRY(tt_value_get_bool(&flag, value));
    else if (tt_value_get_float(&number, value))
        return expected("a number", name);
    return add_made(to, name, tt_keep(tt_full(TT_SCALAR, TT_F64, flag ? 1 : number)));
}

/* Add one parameter's state, {"step": ..., "exp_avg": tensor}. A slot of None is left out. */
static tt_status add_loaded_state(tt__entries *to, int64_t number, const tt_value *state) {
    char name[ENTRY];
    for (int64_t i = 0; i < tt_value_count(state); i++) {
        const tt_value *key = tt_value_key(state, i), *item = tt_value_at(state, i);
        if (tt_value_typeof(key) != TT_VALUE_STRING ||
            snprintf(name, sizeof name, "state.%lld.%s", (long long)number, tt_value_string(key)) >= ENTRY)
            return expected("names of slots", "state");
        if (tt_value_typeof(item) != TT_VALUE_NONE)
            TT__TRY(add_loaded_number(to, name, item));
    }
    return TT_OK;
}

static tt_status add_loaded_states(tt__entries *to, const tt_value *states) {
    if (tt_value_typeof(states) != TT_VALUE_DICT)
        return expected("a dict", "state");
    for (int64_t i = 0; i < tt_value_count(states); i++) {
        int64_t number;
        if (tt_value_get_int(&number, tt_value_key(states, i)) || number < 0)
            return expected("parameters by number", "state");
        if (tt_value_typeof(tt_value_at(states, i)) != TT_VALUE_DICT)
            return expected("a dict for each parameter", "state");
        TT__TRY(add_loaded_state(to, number, tt_value_at(states, i)));
    }
    return TT_OK;
}

/* Return a group's value of one of our options; NULL: it has none. */
static const tt_value *option_in(const tt_value *group, const char *name) {
    const tt_value *betas = beta_of(name) ? tt_value_find(group, "betas") : NULL;
    return betas && tt_value_count(betas) == 2 ? tt_value_at(betas, beta_of(name) - 1) : tt_value_find(group, name);
}

static tt_status add_loaded_params(tt__entries *to, const char *name, const tt_value *params) {
    tt_tensor *numbers = tt_keep(tt_empty(TT_SHAPE(tt_value_count(params)), TT_I64));
    int64_t *at = tt_tensor_i64(numbers);
    for (int64_t i = 0; at && i < tt_value_count(params); i++)
        if (tt_value_get_int(&at[i], tt_value_at(params, i))) {
            tt_tensor_free(numbers);
            return expected("parameters by number", name);
        }
    return add_made(to, name, numbers);
}

/* Add the entries of a group. Options that only PyTorch has, such as foreach, are left out: they don't change
 * results. */
static tt_status add_loaded_group(tt__entries *to, const tt_optimizer *optimizer, int64_t g, const tt_value *group) {
    char name[ENTRY];
    const tt_value *params = tt_value_find(group, "params");
    const char *option;
    for (int64_t i = 0; (option = tt_optimizer_option_name(optimizer, i)); i++) {
        const tt_value *value = option_in(group, option);
        snprintf(name, sizeof name, "param_groups.%lld.%s", (long long)g, option);
        if (value && tt_value_typeof(value) != TT_VALUE_NONE)
            TT__TRY(add_loaded_number(to, name, value));
    }
    snprintf(name, sizeof name, "param_groups.%lld.params", (long long)g);
    if (!params)
        return expected("\"params\" in each group", "param_groups");
    return add_loaded_params(to, name, params);
}

static tt_status add_loaded_groups(tt__entries *to, const tt_optimizer *optimizer, const tt_value *groups) {
    if (tt_value_typeof(groups) != TT_VALUE_LIST)
        return expected("a list", "param_groups");
    for (int64_t g = 0; g < tt_value_count(groups); g++) {
        if (tt_value_typeof(tt_value_at(groups, g)) != TT_VALUE_DICT)
            return expected("a dict for each group", "param_groups");
        TT__TRY(add_loaded_group(to, optimizer, g, tt_value_at(groups, g)));
    }
    return TT_OK;
}

/* Return the most entries that a value needs: the items of its states, and for each group all options and the
 * parameters. */
static size_t room_for_values(const tt_optimizer *optimizer, const tt_value *states, const tt_value *groups) {
    size_t options = 1, room = 0;
    while (tt_optimizer_option_name(optimizer, (int64_t)options - 1))
        options++;
    for (int64_t i = 0; i < tt_value_count(states); i++)
        room += (size_t)tt_value_count(tt_value_at(states, i));
    return room + (size_t)tt_value_count(groups) * options;
}

tt_status tt_optimizer_load_value(tt_optimizer *optimizer, const tt_value *value) {
    const tt_value *states = tt_value_find(value, "state"), *groups = tt_value_find(value, "param_groups");
    if (!optimizer || !value)
        return tt__fail(TT_ERR_INVALID, "%s: the %s is NULL", who, optimizer ? "value" : "optimizer");
    tt__entries entries = {0};
    tt_status status = tt__entries_make(&entries, room_for_values(optimizer, states, groups));
    if (!status)
        status = add_loaded_states(&entries, states);
    if (!status)
        status = add_loaded_groups(&entries, optimizer, groups);
    if (!status)
        status = tt_optimizer_load_state_dict(optimizer, tt__entries_view(&entries));
    tt__entries_free_copies(&entries);
    return status;
}
