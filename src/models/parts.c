#include "models/parts.h"

#include <stdio.h>
#include <string.h>

tt_status tt__add_part(tt_module **part, tt_module *self, const char *name, tt_module *child) {
    tt_status status = tt_module_add_module(self, name, child);
    *part = status ? NULL : child;
    return status;
}

tt_status tt__add_numbered(tt_module *self, tt_module *child) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)tt_module_child_count(self));
    return tt_module_add_module(self, number, child);
}

tt_module *tt__empty_sequential(void) {
    const tt_nn_sequential_args none = {0};
    return tt_nn_sequential_with(&none, sizeof none);
}

tt_module *tt__model_made(const char *who, tt_module *model, tt_status status) {
    if (status && strncmp(tt_last_error(), who, strlen(who)))
        tt__fail_prefix("%s", who);
    return tt__layer_made(model, status);
}

tt_tensor *tt__drop(const tt_module *self, tt_tensor *x, double p) {
    return tt_dropout(x, p, p > 0 && tt_module_training(self));
}

tt_status tt__dropout_check(const char *who, const char *name, double p) {
    if (p >= 0 && p <= 1)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected %s in 0..1, got %g", who, name, p);
}
