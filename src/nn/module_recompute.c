#include "base/error.h"
#include "nn/module.h"
#include "tensor/core/pool.h"

#include <tutti/autograd.h>

static tt_tensor *run_module(void *module, tt_tensor *const *in, int64_t n) {
    (void)n;
    return tt_module_forward(module, in[0]);
}

tt_tensor *tt_module_recompute(tt_module *module, tt_tensor *x) {
    const tt_named_tensors *parameters = module && x ? tt_module_parameters(module) : NULL;
    if (!parameters)
        return NULL;
    tt_tensor **in = tt__pool_alloc((size_t)(parameters->count + 1) * sizeof *in);
    if (!in)
        return tt__tensor_fail(TT_ERR_MEMORY, "tt_module_recompute: no memory for a list of %lld parameters",
                               (long long)parameters->count);
    in[0] = x;
    for (int64_t i = 0; i < parameters->count; i++)
        in[i + 1] = parameters->tensors[i];
    tt_tensor *y = tt_recompute_with(run_module, module, in, parameters->count + 1);
    tt__pool_free(in);
    return y;
}
