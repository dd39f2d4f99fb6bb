#include "models/language_models.h"

#include "nn/module.h"

tt__causal_lm *tt__causal_lm_of(const char *who, const tt_module *model) {
    const tt_module *inner = tt__module_unwrapped(model);
    const tt_module_class *cls = inner ? tt__module_class(inner) : NULL;
    if (cls == &tt__gpt_class || cls == &tt__gpt2_class)
        return tt_module_user(inner);
    if (!inner)
        tt__fail_argument("%s: the model is NULL", who);
    else
        tt__fail_null(TT_ERR_INVALID, "%s: expected a model of tt_model_gpt() or tt_model_gpt2(), got a %s", who,
                      tt_module_class_name(inner));
    return NULL;
}
