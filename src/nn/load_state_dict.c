/* Loading a state dict: all entries are checked before any is copied. */
#include "base/error.h"
#include "nn/module.h"

#include <string.h>

static const char who[] = "tt_module_load_state_dict";

/* Return an entry's name without the prefix that PyTorch's DDP adds, unless the module has such a child itself. */
static const char *plain_name(const tt_named_tensors *own, const char *name) {
    static const char prefix[] = "module.";
    bool prefixed = !strncmp(name, prefix, sizeof prefix - 1) && !tt_named_tensors_find(own, name);
    return prefixed ? name + sizeof prefix - 1 : name;
}

static tt_status check_entry(const tt_named_tensors *own, const char *name, const tt_tensor *x) {
    const tt_tensor *mine = tt_named_tensors_find(own, plain_name(own, name));
    if (!mine)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: unexpected entry \"%s\": the module has no such tensor", who, name);
    const tt_shape shape = tt_tensor_shape(x), expected = tt_tensor_shape(mine);
    bool same_dtype = tt_tensor_dtype(x) == tt_tensor_dtype(mine);
    if (!same_dtype || !tt__shape_equal(&shape, &expected))
        return tt__fail(same_dtype ? TT_ERR_SHAPE : TT_ERR_DTYPE, "%s: \"%s\": expected %s, got %s", who, name,
                        TT__DESCRIBE(mine), TT__DESCRIBE(x));
    return TT_OK;
}

/* Find the state's entry for one of the module's names. */
static const tt_tensor *entry_for(const tt_named_tensors *own, const tt_named_tensors *state, const char *name) {
    for (int64_t i = 0; i < state->count; i++)
        if (!strcmp(plain_name(own, state->names[i]), name))
            return state->tensors[i];
    return NULL;
}

/* Check that names of one tensor (tied weights) have equal values. */
static tt_status check_tied(const tt_named_tensors *own, const tt_named_tensors *state, int64_t i) {
    for (int64_t first = 0; first < i; first++) {
        if (own->tensors[first] != own->tensors[i])
            continue;
        if (tt_equal(entry_for(own, state, own->names[first]), entry_for(own, state, own->names[i])))
            return TT_OK;
        return tt__fail(TT_ERR_INVALID,
                        "%s: \"%s\" and \"%s\" are one tensor here, but two different ones in the state", who,
                        own->names[first], own->names[i]);
    }
    return TT_OK;
}

static tt_status check_entries(const tt_named_tensors *own, const tt_named_tensors *state) {
    for (int64_t i = 0; i < own->count; i++)
        if (!entry_for(own, state, own->names[i]))
            return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s\" is missing", who, own->names[i]);
    for (int64_t i = 0; i < state->count; i++)
        TT__TRY(check_entry(own, state->names[i], state->tensors[i]));
    if (state->count != own->count)
        return tt__fail(TT_ERR_INVALID, "%s: expected %lld entries, got %lld: one comes twice", who,
                        (long long)own->count, (long long)state->count);
    for (int64_t i = 0; i < own->count; i++)
        TT__TRY(check_tied(own, state, i));
    return TT_OK;
}

tt_status tt_module_load_state_dict(tt_module *module, const tt_named_tensors *state) {
    if (!module || !state)
        return tt__fail_argument("%s: the %s is NULL", who, module ? "state" : "module");
    TT__TRY(tt__named_tensors_check(who, state, true));
    const tt_named_tensors *own = tt_module_state_dict(module);
    if (!own)
        return tt_last_status();
    TT__TRY(check_entries(own, state));
    for (int64_t i = 0; i < own->count; i++)
        TT__TRY(tt_copy(own->tensors[i], entry_for(own, state, own->names[i])));
    return TT_OK;
}
