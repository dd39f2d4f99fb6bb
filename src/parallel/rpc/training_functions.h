/* The functions of libtutti that other workers call; rpc_training.c registers them. */
#ifndef TT_PARALLEL_RPC_TRAINING_FUNCTIONS_H
#define TT_PARALLEL_RPC_TRAINING_FUNCTIONS_H

#include <tutti/rpc_training.h>

#define TT__TRAINING_FUNCTIONS(X)                                                                    \
    X(touch, "tutti.autograd.touch", "(int context) -> bool")                                        \
    X(release, "tutti.autograd.release", "(int context)")                                            \
    X(reach, "tutti.autograd.reach", "(int context, int pass, bool retain, bytes numbers) -> bytes") \
    X(finish, "tutti.autograd.finish", "(int context, int pass)")                                    \
    X(gradient, "tutti.autograd.gradient", "(int context, int pass, int number, list gradients)")    \
    X(abort, "tutti.autograd.abort", "(int context, int pass)")                                      \
    X(make_optimizer, "tutti.optim.make", "(text kind, map options, list params) -> rref")           \
    X(step_optimizer, "tutti.optim.step", "(rref optimizer, int context)")                           \
    X(set_option, "tutti.optim.set_option", "(rref optimizer, text name, float value)")              \
    X(check_module, "tutti.module.check", "(rref module)")                                           \
    X(forward, "tutti.module.forward", "(rref module, int results, tensor... inputs) -> list")       \
    X(parameters, "tutti.module.parameters", "(rref module) -> list")                                \
    X(train, "tutti.module.train", "(rref module, bool training)")

#define TT__DECLARE_SERVED(function, name, signature) tt_status tt__serve_##function(tt_rpc_call *call);
TT__TRAINING_FUNCTIONS(TT__DECLARE_SERVED)

/* ---- what the public functions of the same names do */

tt_tensor *tt__take_tensor(tt_rpc_value *value);
tt_status tt__dist_begin(int64_t *context, tt_rpc *rpc);
tt_status tt__return_module(tt_rpc_call *call, tt_module *module);
tt_status tt__remote_module_new(const tt_remote_module_new_args *a);
tt_status tt__dist_optimizer_new(const tt_dist_optimizer_new_args *a);

/* Make a value of a tensor, which is borrowed; return the tensor of a value. */
static inline tt_rpc_value tt__tensor_value(tt_tensor *x) {
    tt_rpc_value value = tt_rpc_none();
    if (x) {
        value.kind = TT_RPC_TENSOR;
        value.tensor = x;
    }
    return value;
}

static inline tt_tensor *tt__value_tensor(const tt_rpc_value *value) {
    return value && value->kind == TT_RPC_TENSOR ? value->tensor : NULL;
}

#endif
