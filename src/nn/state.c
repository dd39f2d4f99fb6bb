/* Loading a state dict: every entry is checked before any is copied. */
#include "base/error.h"
#include "nn/module.h"
#include "tensor/tensor.h"

#include <string.h>

static const char who[] = "tt_module_load_state_dict";

static const tt_tensor *find(tt_named_tensors list, const char *name) {
    for (size_t i = 0; i < list.count; i++)
        if (!strcmp(list.names[i], name))
            return list.tensors[i];
    return NULL;
}

/* An entry's name without the prefix that PyTorch's DDP adds, unless the module has such a child itself. */
static const char *plain_name(tt_named_tensors own, const char *name) {
    static const char prefix[] = "module.";
    bool prefixed = !strncmp(name, prefix, sizeof prefix - 1) && !find(own, name);
    return prefixed ? name + sizeof prefix - 1 : name;
}

static tt_status check_entry(tt_named_tensors own, const char *name, const tt_tensor *x) {
    const tt_tensor *mine = find(own, plain_name(own, name));
    if (!mine)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: unexpected entry \"%s\": the module has no such tensor", who, name);
    if (x->dtype != mine->dtype)
        return tt__fail(TT_ERR_DTYPE, "%s: \"%s\": expected %s, got %s", who, name, TT__DESCRIBE(mine),
                        TT__DESCRIBE(x));
    if (!tt__shape_equal(&x->shape, &mine->shape))
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected %s, got %s", who, name, TT__DESCRIBE(mine),
                        TT__DESCRIBE(x));
    return TT_OK;
}

/* The state's entry for one of the module's names. */
static const tt_tensor *entry_for(tt_named_tensors own, tt_named_tensors state, const char *name) {
    for (size_t i = 0; i < state.count; i++)
        if (!strcmp(plain_name(own, state.names[i]), name))
            return state.tensors[i];
    return NULL;
}

tt_status tt_module_load_state_dict(tt_module *module, tt_named_tensors state) {
    if (!module)
        return tt__fail(TT_ERR_INVALID, "%s: the module is NULL", who);
    tt_named_tensors own = tt_module_state_dict(module);
    for (size_t i = 0; i < own.count; i++)
        if (!entry_for(own, state, own.names[i]))
            return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s\" is missing", who, own.names[i]);
    for (size_t i = 0; i < state.count; i++)
        TT__TRY(check_entry(own, state.names[i], state.tensors[i]));
    if (state.count != own.count)
        return tt__fail(TT_ERR_INVALID, "%s: expected %zu entries, got %zu: one comes twice", who, own.count,
                        state.count);
    for (size_t i = 0; i < own.count; i++)
        TT__TRY(tt_copy(own.tensors[i], entry_for(own, state, own.names[i])));
    return TT_OK;
}
