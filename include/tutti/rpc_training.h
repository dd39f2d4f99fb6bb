/* tutti/rpc_training.h: training over workers that call each other (rpc.h): tensors as values, distributed autograd,
 * distributed optimizers, remote modules.
 *
 *   static tt_status make_encoder(tt_rpc_call *call) { return tt_rpc_return_module(call, tt_nn_linear(20, 10)); }
 *   TT_RPC_FUNCTION(make_encoder, "() -> any");
 *
 *   tt_remote_module_new(&encoder, rpc, "worker1", "make_encoder");
 *   tt_remote_module_parameters(encoder, &params, &count);
 *   tt_dist_optimizer_new(&sgd, rpc, params, count, "sgd", .options = TT_OPTION_LIST({"lr", 0.1}));
 *   for (each batch) {
 *       TT_AUTO_SCOPE;
 *       tt_dist_autograd_begin(&context, rpc);
 *       tt_tensor *loss = tt_mse_loss(tt_remote_module_forward(encoder, x), y);
 *       tt_dist_autograd_backward(rpc, context, &loss, 1);
 *       tt_dist_optimizer_step(sgd, context);
 *       tt_dist_autograd_end(rpc, context);
 *   }
 *
 * Scopes. A function that another worker calls runs in a scope of its own: the tensors that it makes live until it has
 * returned. In a context of distributed autograd they live, with their records, until the context ends. So a function
 * must not open a scope around operations that a backward pass has to follow.
 *
 * Errors, threads: as in rpc.h. A tensor or a module must not be used by two threads at once, unless both only read
 * it. */
#ifndef TUTTI_RPC_TRAINING_H
#define TUTTI_RPC_TRAINING_H

#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/rpc.h>

TT_BEGIN_DECLS

/* ---- tensors as values ---- */

/* Make a value of a tensor of any dtype, shape, device and layout, which is borrowed. The receiver gets a contiguous
 * tensor: of a view, only the elements that it shows, in row-major order. It is on a device of the same kind if the
 * receiver has one, else in the host's memory; and a leaf that requires a gradient if `x` requires one. NULL gives
 * none. Never fails. */
TT_API tt_rpc_value tt_rpc_tensor(tt_tensor *x);

/* Return the tensor of an argument, or of a value. It belongs to the call, or to the value; tt_keep() gives the caller
 * a share. NULL: the argument is missing, or the value is no tensor. */
TT_API tt_tensor *tt_rpc_arg_tensor(const tt_rpc_call *call, int64_t index);
TT_API tt_tensor *tt_rpc_value_tensor(const tt_rpc_value *value);

/* Take the tensor out of a value, and make the value none. Like the result of an operator, the tensor belongs to the
 * open scope, or to the caller if none is open. NULL, recorded: TT_ERR_INVALID the value is no tensor;
 * TT_ERR_MEMORY. */
TT_API tt_tensor *tt_rpc_take_tensor(tt_rpc_value *value);

/* ---- distributed autograd ----
 *
 * A context has the records and gradients of one or several backward passes on all workers. Calls that a thread makes
 * while it is in a context run in that context on the other worker, and so do the calls that these make. Tensors that
 * require a gradient, arguments as well as results, are recorded where they are sent and where they arrive, and a
 * backward pass follows them back. It first asks which of them its roots depend on, so no worker waits for gradients of
 * results that are not used. PyTorch: torch.distributed.autograd.
 *
 * Gradients belong to the context: tt_grad() of a tensor does not change, and no hook runs. Sparse gradients fail with
 * TT_ERR_UNSUPPORTED. A context has an id, which may be passed to functions of other workers. */

/* Begin a context. This thread is in it until tt_dist_autograd_end(), and *context receives its id. Errors:
 * TT_ERR_STATE the thread is in a context already; TT_ERR_INVALID an argument is NULL; TT_ERR_MEMORY. PyTorch:
 * dist_autograd.context(). */
TT_API TT_NODISCARD tt_status tt_dist_autograd_begin(int64_t *context, tt_rpc *rpc);

/* Return the id of the context that this thread is in, also in a function that was called in one; 0: none. PyTorch:
 * dist_autograd._current_context(). */
TT_API int64_t tt_dist_autograd_current(void);

typedef struct tt_dist_autograd_backward_args {
    tt_rpc *rpc;             /* required */
    int64_t context;         /* required: the context's id */
    tt_tensor *const *roots; /* required: tensors of this worker, of one element each, that require a gradient */
    int64_t count;           /* required */
    TT_OPTIONS;
    bool retain_graph;  /* keep the records, for another pass over this context */
    bool create_graph;  /* must be false: there are no second derivatives over workers */
    int64_t timeout_ms; /* 0 = none: it waits as long as the workers that take part live */
    char tt_end;        /* not an option: see base.h */
} tt_dist_autograd_backward_args;

/* Compute the gradients of the sum of the roots with respect to all leaves that it depends on, on all workers, and add
 * them to the context's. Blocks until all workers are done. The roots are borrowed.
 *   tt_dist_autograd_backward(rpc, context, &loss, 1)
 * Errors: TT_ERR_INVALID there are no roots, or one is NULL; TT_ERR_SHAPE a root has more than one element;
 * TT_ERR_STATE a root requires no gradient, a record was freed by an earlier pass without .retain_graph, or another
 * pass over this context is under way; TT_ERR_NOT_FOUND this worker has no such context; TT_ERR_UNSUPPORTED
 * .create_graph; TT_ERR_PEER a worker that takes part was lost (the text names it); TT_ERR_TIMEOUT; the error of an
 * operator (the text names the worker). After a failure the pass has ended on all workers, and the context's gradients
 * are undefined. PyTorch: dist_autograd.backward. */
TT_API TT_NODISCARD tt_status tt_dist_autograd_backward_with(const tt_dist_autograd_backward_args *args, size_t size);
#define TT_DIST_AUTOGRAD_BACKWARD_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_dist_autograd_backward(rpc_, context_, roots_, ...)                                                   \
    tt_dist_autograd_backward_with(TT_ARGS(tt_dist_autograd_backward_args, .rpc = (rpc_), .context = (context_), \
                                           .roots = (roots_), .count = __VA_ARGS__))
#endif

/* Return the gradient of a leaf of this worker, of the leaf's shape. It belongs to the context, and is valid until the
 * next pass over it or its end. NULL: the leaf has no gradient; or, recorded as TT_ERR_NOT_FOUND, this worker has no
 * such context. PyTorch: dist_autograd.get_gradients. */
TT_API tt_tensor *tt_dist_autograd_grad(tt_rpc *rpc, int64_t context, const tt_tensor *leaf);

/* End a context, on the worker that began it: its gradients, its records and the tensors of its calls are freed, here
 * at once and on the other workers soon. If that worker is lost, the others end the context themselves. Errors:
 * TT_ERR_NOT_FOUND this worker has no such context, or it has ended; TT_ERR_STATE another worker began it. PyTorch: the
 * end of `with dist_autograd.context()`. */
TT_API TT_NODISCARD tt_status tt_dist_autograd_end(tt_rpc *rpc, int64_t context);

/* Return how many contexts this worker has, its own and those of other workers; 0 for NULL. PyTorch:
 * dist_autograd._get_debug_info()["num_autograd_contexts"]. */
TT_API int64_t tt_dist_autograd_context_count(tt_rpc *rpc);

/* ---- distributed optimizers ---- */

typedef struct tt_dist_optimizer tt_dist_optimizer;

typedef struct tt_dist_optimizer_new_args {
    tt_dist_optimizer **out; /* required: receives it, the caller's to free */
    tt_rpc *rpc;             /* required */
    tt_rref *const *params;  /* required: (count) references to leaves of any workers; borrowed */
    int64_t count;           /* required */
    /* required: "sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "lamb": those of optim.h */
    const char *kind;
    TT_OPTIONS;
    const tt_option *options; /* options that differ from PyTorch's defaults; the last has the name NULL */
    char tt_end;              /* not an option: see base.h */
} tt_dist_optimizer_new_args;

/* Make an optimizer on each worker that owns some of the parameters. Blocks until all are made.
 *   tt_dist_optimizer_new(&sgd, rpc, params, count, "sgd", .options = TT_OPTION_LIST({"lr", 0.1}))
 * Errors: TT_ERR_INVALID the list is empty, or a reference is NULL or leads to no tensor that requires a gradient;
 * TT_ERR_NOT_FOUND there is no such kind or option (the text lists those there are); those of the optimizer's
 * constructor and of tt_rpc_sync(). PyTorch: distributed.optim.DistributedOptimizer. */
TT_API TT_NODISCARD tt_status tt_dist_optimizer_new_with(const tt_dist_optimizer_new_args *args, size_t size);
#define TT_DIST_OPTIMIZER_NEW_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_dist_optimizer_new(out_, rpc_, params_, count_, ...)                                                \
    tt_dist_optimizer_new_with(TT_ARGS(tt_dist_optimizer_new_args, .out = TT_PLACE(tt_dist_optimizer *, out_), \
                                       .rpc = (rpc_), .params = (params_), .count = (count_), .kind = __VA_ARGS__))
#endif

/* Update every parameter that has a gradient in the context, by one call to each owner, all at the same time. Blocks
 * until all have answered. On one worker only one step runs at a time, whichever optimizer or trainer it is of. Errors:
 * TT_ERR_NOT_FOUND this worker has no such context; TT_ERR_PEER a worker was lost (the text names it; the other owners
 * have made the step); those of tt_optimizer_step() and of tt_rpc_sync(). PyTorch: DistributedOptimizer.step. */
TT_API TT_NODISCARD tt_status tt_dist_optimizer_step(tt_dist_optimizer *optimizer, int64_t context);

/* Set an option ("lr") of the optimizers on all owners. Blocks until all have answered. Errors: those of
 * tt_optimizer_set_option() and of tt_rpc_sync(). PyTorch's has no counterpart. */
TT_API TT_NODISCARD tt_status tt_dist_optimizer_set_option(tt_dist_optimizer *optimizer, const char *name,
                                                           double value);

/* Free an optimizer, here and, without waiting, on the owners. NULL is allowed. */
TT_API void tt_dist_optimizer_free(tt_dist_optimizer *optimizer);

/* ---- remote modules ---- */

typedef struct tt_remote_module tt_remote_module;

/* Give a module as the result of a function, whose signature ends in "-> any". The call takes the module, also on
 * failure. If it is NULL, returns this thread's last error: that of the constructor. Errors: those of
 * tt_rpc_return(). */
TT_API TT_NODISCARD tt_status tt_rpc_return_module(tt_rpc_call *call, tt_module *module);

/* Return the module that a reference leads to, on its owner. It belongs to the reference. Blocks until it has been
 * made.
 * NULL, recorded: TT_ERR_INVALID the value is no module; the errors of tt_rref_local(). */
TT_API tt_module *tt_rref_local_module(tt_rref *rref);

typedef struct tt_remote_module_new_args {
    tt_remote_module **out; /* required: receives it, the caller's to free */
    tt_rpc *rpc;            /* required */
    const char *to;         /* required: a worker's name */
    const char *function;   /* required: the name of a function that gives its result by tt_rpc_return_module() */
    TT_OPTIONS;
    tt_rpc_values args; /* for that function; borrowed */
    char tt_end;        /* not an option: see base.h */
} tt_remote_module_new_args;

/* Have a worker, which may be this one, make a module. Blocks until it is made. The worker frees it with the last
 * reference to it.
 *   tt_remote_module_new(&encoder, rpc, "worker1", "make_encoder", .args = TT_RPC_ARGS(tt_rpc_int(20)))
 * Errors: TT_ERR_INVALID the function made no module; those of the function and of tt_rpc_sync(). PyTorch:
 * RemoteModule. */
TT_API TT_NODISCARD tt_status tt_remote_module_new_with(const tt_remote_module_new_args *args, size_t size);
#define TT_REMOTE_MODULE_NEW_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_remote_module_new(out_, rpc_, to_, ...)                                                          \
    tt_remote_module_new_with(TT_ARGS(tt_remote_module_new_args, .out = TT_PLACE(tt_remote_module *, out_), \
                                      .rpc = (rpc_), .to = (to_), .function = __VA_ARGS__))
#endif

/* Run the module on one tensor, by tt_module_forward() on its worker, and return the result, which belongs to the open
 * scope like that of an operator. Blocks until it is there. Calls of one module run one after the other. NULL,
 * recorded: the errors of tt_module_forward() and of tt_rpc_sync(). A module or `x` that is NULL gives NULL. PyTorch:
 * RemoteModule.forward. */
TT_API tt_tensor *tt_remote_module_forward(tt_remote_module *module, tt_tensor *x);

/* Run the module on the `input_count` tensors at `inputs`. It must give `output_count` results, which `outputs`
 * receives; they belong to the open scope like those of operators. Blocks until they are there. After a failure all of
 * them are NULL. Errors: as in tt_remote_module_forward(). */
TT_API TT_NODISCARD tt_status tt_remote_module_forward_many(tt_remote_module *module, tt_tensor *const *inputs,
                                                            int64_t input_count, tt_tensor **outputs,
                                                            int64_t output_count);

/* Run the module without waiting: *out receives a future of the list of its results, which is the caller's to free. The
 * inputs must stay unchanged until it is done. Blocks only as tt_rpc_async() does. Errors: as in
 * tt_remote_module_forward(), some of them from the future. PyTorch: RemoteModule.forward_async. */
TT_API TT_NODISCARD tt_status tt_remote_module_forward_async(tt_future **out, tt_remote_module *module,
                                                             tt_tensor *const *inputs, int64_t input_count,
                                                             int64_t output_count);

/* Get references to the module's parameters, in the order of tt_module_parameters(): *params receives a list of *count,
 * which the caller frees by tt_rrefs_free(). Blocks until they are there. Errors: those of tt_rpc_sync(). PyTorch:
 * RemoteModule.remote_parameters. */
TT_API TT_NODISCARD tt_status tt_remote_module_parameters(tt_remote_module *module, tt_rref ***params, int64_t *count);

/* Drop the `count` references at `rrefs`, and free the list. NULL is allowed. */
TT_API void tt_rrefs_free(tt_rref **rrefs, int64_t count);

/* Set the module to training mode, or to evaluation mode. Blocks until it is. Errors: those of tt_rpc_sync(). PyTorch:
 * RemoteModule.train(), eval(). */
TT_API TT_NODISCARD tt_status tt_remote_module_train(tt_remote_module *module, bool training);

/* Return the reference to the module. It belongs to the tt_remote_module. NULL for NULL. PyTorch:
 * RemoteModule.get_module_rref(). */
TT_API tt_rref *tt_remote_module_rref(const tt_remote_module *module);

/* Free the tt_remote_module and its reference; the module is freed with the last reference to it. NULL is allowed. */
TT_API void tt_remote_module_free(tt_remote_module *module);

TT_END_DECLS
#endif
