/* The public functions that every program which trains by calls uses one of. So a static linker takes this file, whose
 * constructor registers the functions that workers call of each other, and the hooks for tensors in values. */
#include "base/args.h"
#include "parallel/rpc/dist.h"
#include "parallel/rpc/training_functions.h"

__attribute__((constructor)) static void register_training(void) {
    tt__rpc_set_tensor_hooks(&tt__tensor_hooks);
#define REGISTER_SERVED(function, name, signature) tt_rpc_register_at_load(name, signature, tt__serve_##function);
    TT__TRAINING_FUNCTIONS(REGISTER_SERVED)
}

tt_rpc_value tt_rpc_tensor(tt_tensor *x) { return tt__tensor_value(x); }

tt_tensor *tt_rpc_value_tensor(const tt_rpc_value *value) { return tt__value_tensor(value); }

tt_tensor *tt_rpc_arg_tensor(const tt_rpc_call *call, int64_t index) {
    return tt__value_tensor(tt_rpc_arg(call, index));
}

tt_tensor *tt_rpc_take_tensor(tt_rpc_value *value) { return tt__take_tensor(value); }

tt_status tt_dist_autograd_begin(int64_t *context, tt_rpc *rpc) { return tt__dist_begin(context, rpc); }

tt_status tt_rpc_return_module(tt_rpc_call *call, tt_module *module) { return tt__return_module(call, module); }

tt_status tt_remote_module_new_with(const tt_remote_module_new_args *args, size_t size) {
    tt_remote_module_new_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__remote_module_new(&a);
}

tt_status tt_dist_optimizer_new_with(const tt_dist_optimizer_new_args *args, size_t size) {
    tt_dist_optimizer_new_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__dist_optimizer_new(&a);
}
