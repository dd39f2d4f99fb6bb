/* The globals that a pickle may name. Each makes a value of its arguments; nothing else can be called. */
#include "checkpoint/pickle.h"
#include "checkpoint/pickle_tensors.h"

#include <string.h>

#include "base/error.h"
#include "checkpoint/safetensors.h"

/* ---- dicts and the like ---- */

/* OrderedDict() or Counter({...}): a dict of the same pairs. */
static tt_status make_dict(tt__pickle *p, const tt_value *args, tt_value **out) {
    bool filled = args->count == 1 && args->items[0]->type == TT_VALUE_DICT;
    if (args->count > 0 && !filled)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "expected a dict made of nothing or of a dict, got %s",
                               TT__VALUE_TEXT(args->items[0]));
    *out = filled ? args->items[0] : tt__pickle_new(p, TT_VALUE_DICT);
    return *out ? TT_OK : tt_last_status();
}

/* torch.Size((2, 3)): the tuple. */
static tt_status make_size(tt__pickle *p, const tt_value *args, tt_value **out) {
    if (args->count != 1 || args->items[0]->type != TT_VALUE_TUPLE)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "torch.Size: expected a tuple, got %s",
                               args->count ? TT__VALUE_TEXT(args->items[0]) : "nothing");
    *out = args->items[0];
    return TT_OK;
}

/* torch.device("cuda", 1): its type, a string. */
static tt_status make_device(tt__pickle *p, const tt_value *args, tt_value **out) {
    if (args->count < 1 || args->items[0]->type != TT_VALUE_STRING)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "torch.device: expected a string, got %s",
                               args->count ? TT__VALUE_TEXT(args->items[0]) : "nothing");
    *out = args->items[0];
    return TT_OK;
}

/* ---- the list ---- */

static const tt__pickle_global globals[] = {
    {"collections", "OrderedDict", make_dict},
    {"collections", "Counter", make_dict},
    {"torch", "Size", make_size},
    {"torch", "device", make_device},
    {"torch._utils", "_rebuild_tensor", tt__pickle_rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v2", tt__pickle_rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v3", tt__pickle_rebuild_tensor_typed},
    {"torch._utils", "_rebuild_parameter", tt__pickle_rebuild_parameter},
    {"torch.storage", "UntypedStorage", NULL},
};

static tt_status push_global(tt__pickle *p, const tt__pickle_global *global) {
    tt_value *v = tt__pickle_new(p, TT__VALUE_GLOBAL);
    if (v)
        v->global = global;
    return tt__pickle_push(p, v);
}

static tt_status push_dtype(tt__pickle *p, const tt__torch_type *type) {
    if (!type->supported)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "the element type torch.%s is not supported", type->dtype);
    tt_value *v = tt__pickle_new(p, TT_VALUE_DTYPE);
    if (v)
        v->dtype = type->ours;
    return tt__pickle_push(p, v);
}

/* Push a name of module torch: a type of elements or of storages. False: it is neither. */
static bool push_torch(tt__pickle *p, const char *name, tt_status *status) {
    const tt__torch_type *storage = tt__torch_type_of_storage(name), *dtype = tt__torch_type_of_dtype(name);
    tt_value *v = storage ? tt__pickle_new(p, TT__VALUE_GLOBAL) : NULL;
    if (v)
        v->global = storage;
    if (storage)
        *status = tt__pickle_push(p, v);
    else if (dtype)
        *status = push_dtype(p, dtype);
    return storage || dtype;
}

tt_status tt__pickle_global_push(tt__pickle *p, const char *module, const char *name) {
    tt_status status = TT_OK;
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (!strcmp(globals[i].module, module) && !strcmp(globals[i].name, name))
            return push_global(p, &globals[i]);
    if (!strcmp(module, "torch") && push_torch(p, name, &status))
        return status;
    return tt__pickle_fail(p, TT_ERR_UNSUPPORTED,
                           "the file holds a %s.%s; tensors, numbers, texts, lists and dicts of them can be read, and "
                           "no code is run (in Python, save model.state_dict() rather than the model)",
                           tt__make_printable(module).text, tt__make_printable(name).text);
}

tt_status tt__pickle_call(tt__pickle *p, const tt_value *function, const tt_value *args, tt_value **out) {
    const tt__pickle_global *known = NULL;
    for (size_t i = 0; function->type == TT__VALUE_GLOBAL && i < sizeof globals / sizeof *globals; i++)
        if (function->global == &globals[i])
            known = &globals[i];
    if (!known || !known->call || args->type != TT_VALUE_TUPLE)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected a function and a tuple of arguments, got %s and %s",
                               TT__VALUE_TEXT(function), TT__VALUE_TEXT(args));
    return known->call(p, args, out);
}
