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
 * returned; in a context of distributed autograd they live, with their records, until the context ends. So a function
 * must not open a scope around what backward has to go through.
 *
 * Errors, threads: as in rpc.h. */
#ifndef TUTTI_RPC_TRAINING_H
#define TUTTI_RPC_TRAINING_H

#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/rpc.h>

TT_BEGIN_DECLS

/* ---- tensors as values ---- */

/* Make a value of a tensor of any dtype, device and layout, which is borrowed. A view sends the elements that it shows,
 * in row-major order. A tensor that requires a gradient arrives as a leaf that requires one. It arrives on a device of
 * the same kind if the receiver has one, else in the host's memory. NULL gives none. */
TT_API tt_rpc_value tt_rpc_tensor(tt_tensor *x);

/* Return the tensor of an argument, or of a value. It belongs to the call, or the value; tt_keep() makes it the
 * caller's, too. NULL: there is none, or it is of another kind. */
TT_API tt_tensor *tt_rpc_arg_tensor(const tt_rpc_call *call, int64_t index);
TT_API tt_tensor *tt_rpc_value_tensor(const tt_rpc_value *value);

/* Take the tensor out of a value, which is none then. As the result of an operator it belongs to the open scope, or to
 * the caller if none is open. NULL, recorded: TT_ERR_INVALID it is of another kind; TT_ERR_MEMORY. */
TT_API tt_tensor *tt_rpc_take_tensor(tt_rpc_value *value);

/* ---- distributed autograd ----
 *
 * A context holds the records and gradients of one or several backward passes on all workers. Calls that a thread makes
 * in its context run in it, and so do the calls that those make: tensors that require a gradient are noted where they
 * leave and where they arrive, arguments as well as results. A backward pass follows them back. It first asks which of
 * them its roots depend on, so nobody waits for gradients of results that are not used. PyTorch:
 * torch.distributed.autograd.
 *
 * Gradients belong to the context: tt_grad() of a tensor does not change, and no hook runs. Sparse gradients fail with
 * TT_ERR_UNSUPPORTED. A context has an id, which may be passed to functions of other workers. */

/* Begin a context, which is this thread's until tt_dist_autograd_end(). *context receives its id. Errors: TT_ERR_STATE
 * the thread has one already; TT_ERR_MEMORY. PyTorch: dist_autograd.context(). */
TT_API TT_NODISCARD tt_status tt_dist_autograd_begin(int64_t *context, tt_rpc *rpc);

/* Return the id of this thread's context, also in a function that was called in one. 0: it has none. */
TT_API int64_t tt_dist_autograd_current(void);

typedef struct tt_dist_autograd_backward_args {
    tt_rpc *rpc;             /* required, as are the next three */
    int64_t context;         /* its id */
    tt_tensor *const *roots; /* tensors of this worker, of one element each, that require a gradient */
    int64_t count;
    TT_OPTIONS;
    bool retain_graph;  /* keep the records, for another pass over this context */
    bool create_graph;  /* refused: there are no second derivatives over workers */
    int64_t timeout_ms; /* 0 = none: it waits as long as the workers that it needs live */
    char tt_end;        /* not an option: see base.h */
} tt_dist_autograd_backward_args;

/* Add the gradients of the sum of the roots, with respect to leaves on all workers, to those of the context. Blocks
 * until all of them are there.
 *   tt_dist_autograd_backward(rpc, context, &loss, 1)
 * Errors: TT_ERR_INVALID, TT_ERR_SHAPE, TT_ERR_STATE roots that can't be, or a record that is spent; TT_ERR_NOT_FOUND
 * no such context here; TT_ERR_STATE another pass over this context is under way; TT_ERR_UNSUPPORTED .create_graph;
 * TT_ERR_PEER a worker that the pass needs was lost, by name; TT_ERR_TIMEOUT; what an operator failed with, and on
 * which worker. After a failure the pass has ended on all workers, and the context's gradients are undefined. PyTorch:
 * dist_autograd.backward. */
TT_API TT_NODISCARD tt_status tt_dist_autograd_backward_with(const tt_dist_autograd_backward_args *args, size_t size);
#define TT_DIST_AUTOGRAD_BACKWARD_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_dist_autograd_backward(rpc_, context_, roots_, ...)                                                   \
    tt_dist_autograd_backward_with(TT_ARGS(tt_dist_autograd_backward_args, .rpc = (rpc_), .context = (context_), \
                                           .roots = (roots_), .count = __VA_ARGS__))
#endif

/* Return the gradient of a leaf of this worker. It belongs to the context, until its next pass or its end. NULL: the
 * leaf has none, or, recorded as TT_ERR_NOT_FOUND, there is no such context here. PyTorch:
 * dist_autograd.get_gradients. */
TT_API tt_tensor *tt_dist_autograd_grad(tt_rpc *rpc, int64_t context, const tt_tensor *leaf);

/* End a context: its gradients, its records and the tensors of its calls are freed on all workers. If the worker that
 * has begun a context is lost, the others end it. Errors: TT_ERR_NOT_FOUND there is no such context, or it has ended;
 * TT_ERR_STATE another worker has begun it. */
TT_API TT_NODISCARD tt_status tt_dist_autograd_end(tt_rpc *rpc, int64_t context);

/* Return how many contexts this worker knows, its own and those of other workers. 0 for NULL. */
TT_API int64_t tt_dist_autograd_context_count(tt_rpc *rpc);

/* ---- distributed optimizers ---- */

typedef struct tt_dist_optimizer tt_dist_optimizer;

typedef struct tt_dist_optimizer_new_args {
    tt_dist_optimizer **out; /* required: receives it, the caller's to free */
    tt_rpc *rpc;             /* required, as are the next three */
    tt_rref *const *params;  /* references to tensors of any workers; they are borrowed */
    int64_t count;
    const char *kind; /* "sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "lamb": those of optim.h */
    TT_OPTIONS;
    const tt_option *options; /* those that differ from PyTorch's defaults, up to a name NULL */
    char tt_end;              /* not an option: see base.h */
} tt_dist_optimizer_new_args;

/* Make an optimizer on each worker that has some of the parameters. Blocks until all have one.
 *   tt_dist_optimizer_new(&sgd, rpc, params, count, "sgd", .options = TT_OPTION_LIST({"lr", 0.1}))
 * Errors: TT_ERR_INVALID an empty list, a reference that is NULL or not to a tensor; TT_ERR_NOT_FOUND no such kind or
 * option (the text lists those there are); those of the constructor and of a call. PyTorch:
 * distributed.optim.DistributedOptimizer. */
TT_API TT_NODISCARD tt_status tt_dist_optimizer_new_with(const tt_dist_optimizer_new_args *args, size_t size);
#define TT_DIST_OPTIMIZER_NEW_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_dist_optimizer_new(out_, rpc_, params_, count_, ...)                                                \
    tt_dist_optimizer_new_with(TT_ARGS(tt_dist_optimizer_new_args, .out = TT_PLACE(tt_dist_optimizer *, out_), \
                                       .rpc = (rpc_), .params = (params_), .count = (count_), .kind = __VA_ARGS__))
#endif

/* Update every parameter that has a gradient in the context, by one call to each worker, all at the same time. Steps on
 * one worker do not mix: that of another optimizer comes before or after. Blocks until all are done. Errors:
 * TT_ERR_NOT_FOUND no such context; TT_ERR_PEER a worker was lost, by name, and the others have made the step; those of
 * tt_optimizer_step(). */
TT_API TT_NODISCARD tt_status tt_dist_optimizer_step(tt_dist_optimizer *optimizer, int64_t context);

/* Set an option ("lr") of the optimizers on all workers. Blocks until they have it. Errors: those of
 * tt_optimizer_set_option() and of a call. */
TT_API TT_NODISCARD tt_status tt_dist_optimizer_set_option(tt_dist_optimizer *optimizer, const char *name,
                                                           double value);

/* Free an optimizer, here and on the workers. NULL is allowed. */
TT_API void tt_dist_optimizer_free(tt_dist_optimizer *optimizer);

/* ---- remote modules ---- */

typedef struct tt_remote_module tt_remote_module;

/* Give a module as the result of a function that makes one. The call owns it from then on, also on failure. NULL
 * returns the error that made it NULL. The function's signature ends in "-> any". */
TT_API TT_NODISCARD tt_status tt_rpc_return_module(tt_rpc_call *call, tt_module *module);

/* Return the module that a reference stands for, on its owner. It belongs to the reference. NULL, recorded: what
 * tt_rref_local() fails with; TT_ERR_INVALID the value is no module. */
TT_API tt_module *tt_rref_local_module(tt_rref *rref);

typedef struct tt_remote_module_new_args {
    tt_remote_module **out; /* required: receives it, the caller's to free */
    tt_rpc *rpc;            /* required, as are the next two */
    const char *to;         /* a worker's name */
    const char *function;   /* the name of a function that ends in tt_rpc_return_module() */
    TT_OPTIONS;
    tt_rpc_values args; /* of that function */
    char tt_end;        /* not an option: see base.h */
} tt_remote_module_new_args;

/* Make a module on a worker, which may be this one. It is freed with the last reference to it. Blocks until it is made.
 *   tt_remote_module_new(&encoder, rpc, "worker1", "make_encoder", .args = TT_RPC_ARGS(tt_rpc_int(20)))
 * Errors: those of the function and of a call; TT_ERR_INVALID it made something else. PyTorch: RemoteModule. */
TT_API TT_NODISCARD tt_status tt_remote_module_new_with(const tt_remote_module_new_args *args, size_t size);
#define TT_REMOTE_MODULE_NEW_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_remote_module_new(out_, rpc_, to_, ...)                                                          \
    tt_remote_module_new_with(TT_ARGS(tt_remote_module_new_args, .out = TT_PLACE(tt_remote_module *, out_), \
                                      .rpc = (rpc_), .to = (to_), .function = __VA_ARGS__))
#endif

/* Run the module on one tensor and return what tt_module_forward() gives on its worker, owned as the result of an
 * operator. Blocks until it is there. Calls of one module run one after the other. A module or x that is NULL gives
 * NULL. PyTorch: RemoteModule.forward. */
TT_API tt_tensor *tt_remote_module_forward(tt_remote_module *module, tt_tensor *x);

/* Run the module on `input_count` tensors; it must give `output_count` results, which `outputs` receives, owned as
 * those of operators. After a failure all of them are NULL. */
TT_API TT_NODISCARD tt_status tt_remote_module_forward_many(tt_remote_module *module, tt_tensor *const *inputs,
                                                            int64_t input_count, tt_tensor **outputs,
                                                            int64_t output_count);

/* Run the module without waiting: *out receives a future of the list of its results, which is the caller's to free. The
 * inputs must stay as they are until it is done. PyTorch: RemoteModule.forward_async. */
TT_API TT_NODISCARD tt_status tt_remote_module_forward_async(tt_future **out, tt_remote_module *module,
                                                             tt_tensor *const *inputs, int64_t input_count,
                                                             int64_t output_count);

/* Get references to the module's parameters, in their order: *params receives *count of them, to be freed by
 * tt_rrefs_free(params, count). Blocks. PyTorch: RemoteModule.remote_parameters. */
TT_API TT_NODISCARD tt_status tt_remote_module_parameters(tt_remote_module *module, tt_rref ***params, int64_t *count);
TT_API void tt_rrefs_free(tt_rref **rrefs, int64_t count);

/* Set the module to training mode, or to evaluation mode. Blocks. PyTorch: train(), eval(). */
TT_API TT_NODISCARD tt_status tt_remote_module_train(tt_remote_module *module, bool training);

/* Return the reference to the module, which belongs to it. NULL for NULL. PyTorch: get_module_rref(). */
TT_API tt_rref *tt_remote_module_rref(const tt_remote_module *module);

/* Let the module go: it is freed with the last reference to it. NULL is allowed. */
TT_API void tt_remote_module_free(tt_remote_module *module);

TT_END_DECLS
#endif
