/* tutti/autograd.h: records of what was computed, backward, operators of one's own.
 *
 * An operator (functional.h) one of whose inputs requires a gradient is recorded: a node, which knows the nodes and
 * leaves its inputs came from, and what its backward needs. A record lives as long as a result made with it, at most
 * until the scope ends in which it was recorded. tt_backward() walks the records from a result to the leaves; they are
 * then spent, unless they are retained. Records of one thread may be walked by another, one pass at a time for each
 * record.
 *
 * Operators compute on the device and in the element type of their inputs, which must agree (TT_ERR_DTYPE,
 * TT_ERR_INVALID). Where backward needs a tensor that was overwritten after the call was recorded it fails
 * (TT_ERR_STATE) and names operator and tensor. See tensor.h for errors and ownership. */
#ifndef TUTTI_AUTOGRAD_H
#define TUTTI_AUTOGRAD_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* ---- leaves ---- */

/* Make x (floats, made by no recorded operator) a leaf that collects a gradient, or no longer. Returns x; NULL and an
 * error otherwise. */
TT_API tt_tensor *tt_requires_grad_(tt_tensor *x, bool requires_grad);

/* Is x a leaf that collects a gradient, or made from one by recorded operators? False for NULL. */
TT_API bool tt_requires_grad(const tt_tensor *x);

/* The gradient of a leaf: a tensor of x's shape that belongs to x, or NULL if none was computed since it was made or
 * zeroed. */
TT_API tt_tensor *tt_grad(const tt_tensor *x);

/* The sparse gradient of a leaf x (V, C), such as the weight of tt_embedding(.sparse = true): the numbers of the rows
 * that have one, (n) i64, ascending, each once, and their gradients, (n, C) of x's type; all other rows' are zero. Both
 * tensors are borrowed until the next backward that reaches x, or tt_zero_grad(). NULL: x has none, or is NULL; while
 * it has one, tt_grad() is NULL. Gradients of a row that several calls or passes read are added in the order in which
 * they come, with the bits that tt_grad() would have without .sparse.
 * Sparse gradients are for tt_sgd() without momentum and weight decay, tt_adagrad() without weight decay and
 * tt_sparse_adam(). tt_ddp() averages them; tt_fully_shard(), tt_zero_optimizer() and tt_data_parallel() refuse such
 * leaves. tt_clip_grad_norm_(), tt_clip_grad_value_() and tt_grad_scaler take them as any others. A pass that gives x a
 * gradient of rows and one of the whole fails with TT_ERR_UNSUPPORTED, also where one of the two is from an earlier
 * pass.
 * PyTorch: x.grad.coalesce().indices() and .values(), of nn.Embedding(sparse=True). */
TT_API tt_tensor *tt_sparse_grad_indices(const tt_tensor *x);
TT_API tt_tensor *tt_sparse_grad_values(const tt_tensor *x);

/* Drop the gradient: tt_grad is NULL until the next backward (PyTorch: zero_grad(set_to_none=True)). Its memory is
 * reused. */
TT_API void tt_zero_grad(tt_tensor *x);

/* Called when the gradient of leaf x is final in a backward pass, in the thread that runs it. Passes of other threads
 * leave x's gradient alone meanwhile, and wait with their hooks of x. A failing hook ends the pass, with its status. It
 * must not end a scope that was open when the pass began, and can't begin a pass. */
typedef tt_status (*tt_grad_hook)(tt_tensor *x, void *user);

typedef struct tt_register_post_accumulate_grad_hook_args {
    tt_tensor *x;      /* required: a leaf */
    tt_grad_hook hook; /* required */
    void *user;        /* required: handed to the hook; borrowed, unless there is .destroy */
    TT_OPTIONS;
    void (*destroy)(void *user); /* release `user`: when x is freed or is no leaf any more, and on failure */
    char tt_end;                 /* not an option: see base.h */
} tt_register_post_accumulate_grad_hook_args;

/* Hooks run in the order of registration and stay until x is freed or is no leaf any more. PyTorch:
 * register_post_accumulate_grad_hook.
 *   tt_register_post_accumulate_grad_hook(weight, clip, &limit)
 * Errors: TT_ERR_STATE x is no leaf; TT_ERR_INVALID no hook; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status
tt_register_post_accumulate_grad_hook_with(const tt_register_post_accumulate_grad_hook_args *args, size_t size);
#define TT_REGISTER_POST_ACCUMULATE_GRAD_HOOK_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_register_post_accumulate_grad_hook(x_, hook_, ...) \
    tt_register_post_accumulate_grad_hook_with(               \
        TT_ARGS(tt_register_post_accumulate_grad_hook_args, .x = (x_), .hook = (hook_), .user = __VA_ARGS__))
#endif

/* ---- backward ---- */

/* The rest of a pass for the leaves: see tt_backward_args.deferred. */
typedef struct tt_deferred_backward tt_deferred_backward;

typedef struct tt_backward_args {
    tt_tensor *y; /* required */
    TT_OPTIONS;
    /* of y: its shape, dtype and device; borrowed. NULL: y has one element, and its gradient is 1 */
    const tt_tensor *gradient;
    bool retain_graph; /* the records can be walked again */

    /* Only these leaves (input_count of them) get gradients, and only what leads to them is computed. NULL: all that y
     * depends on. PyTorch: backward(inputs=). */
    tt_tensor *const *inputs;
    int64_t input_count;

    /* Not NULL: compute now what leads to `inputs` (may be none), and leave the gradients of all other leaves to
     * tt_backward_deferred(*deferred), for which the records are kept. Each record is walked twice, but nothing is
     * computed twice: the two halves of a zero-bubble pipeline's backward (Qi et al., 2023). *deferred is the
     * caller's; NULL on failure. */
    tt_deferred_backward **deferred;
    char tt_end; /* not an option: see base.h */
} tt_backward_args;

/* Add the gradients of y with respect to leaves to their tt_grad. When it returns, hooks and end-of-pass callbacks
 * (gradient averaging) have run. It may be called from inside an operator's backward (recomputation), not from a hook.
 *   tt_backward(loss)     tt_backward(y, .gradient = dy, .retain_graph = true)
 * Errors: y NULL: the first error of the scope, which is then cleared; TT_ERR_SHAPE y has not one element and no
 * gradient was given, or the gradient has another shape; TT_ERR_DTYPE the gradient has another type; TT_ERR_STATE y
 * depends on nothing that requires a gradient, a record is spent, or what a record needs was overwritten; what a hook
 * or operator returned. After a failure inside the pass the records it would have walked are spent and gradients are
 * undefined. */
TT_API TT_NODISCARD tt_status tt_backward_with(const tt_backward_args *args, size_t size);
#ifndef __cplusplus
#define tt_backward(...) tt_backward_with(TT_ARGS(tt_backward_args, .y = __VA_ARGS__))
#endif
#define TT_BACKWARD_ARGS_INIT TT_ARGS_INIT

/* Run the rest of a pass, once, from any thread: add the gradients of the leaves that were left out; hooks run as each
 * becomes final.
 * Errors: TT_ERR_INVALID NULL; TT_ERR_STATE called from a hook, or what a record needs was overwritten; TT_ERR_MEMORY;
 * what a hook or operator returned. After a failure gradients are undefined, and the rest can't be run again. */
TT_API TT_NODISCARD tt_status tt_backward_deferred(tt_deferred_backward *deferred);

/* Free the rest of a pass, whether it was run or not; without it the records are spent unless they are retained. NULL
 * is allowed. */
TT_API void tt_deferred_backward_free(tt_deferred_backward *deferred);

/* List the leaves that a backward pass from y would reach, each once: at most `room` of them into `leaves` (borrowed).
 * Returns how many there are: 0 if y has no record; -1, with TT_ERR_MEMORY. PyTorch's DDP finds unused parameters this
 * way. */
TT_API int64_t tt_reachable_leaves(const tt_tensor *y, tt_tensor **leaves, int64_t room);

/* x's data without its history; shares storage. */
TT_API tt_tensor *tt_detach(tt_tensor *x);

/* Record nothing in this thread until tt_no_grad_end(). Pairs nest. Returns what tt_no_grad_end() takes. PyTorch:
 * no_grad. */
TT_API bool tt_no_grad_begin(void);

/* Record again, inside a tt_no_grad_begin(), until tt_no_grad_end(). Returns what tt_no_grad_end() takes. PyTorch:
 * enable_grad. */
TT_API bool tt_enable_grad_begin(void);

/* End either; `before` is what its begin returned. */
TT_API void tt_no_grad_end(bool before);

/* TT_NO_GRAD; and TT_ENABLE_GRAD; do the same for the rest of the enclosing block, however it is left. gcc and
 * clang. */
#if defined(__GNUC__) && !defined(__cplusplus)
/* What they run at the block's end: tt_no_grad_end(*before). */
TT_API void tt_no_grad_cleanup(const bool *before);
#define TT_NO_GRAD __attribute__((cleanup(tt_no_grad_cleanup), unused)) const bool tt_no_grad_ = tt_no_grad_begin()
#define TT_ENABLE_GRAD \
    __attribute__((cleanup(tt_no_grad_cleanup), unused)) const bool tt_enable_grad_ = tt_enable_grad_begin()
#endif

/* ---- autocast: mixed precision ---- */

typedef struct tt_autocast_begin_args {
    tt_dtype dtype; /* required: TT_BF16 or TT_F16; with another one operators fail (TT_ERR_DTYPE) */
    TT_OPTIONS;
    bool disabled; /* inside another autocast: everything is computed in the types it comes in */
    bool no_cache; /* cast leaves at each use, not once */
    char tt_end;   /* not an option: see base.h */
} tt_autocast_begin_args;

/* Until tt_autocast_end(), operators that this thread calls choose the types they compute in (docs/mixed_precision.md
 * has the list): products, convolutions and attention cast floats to `dtype`, losses to f32, and those that join
 * tensors, which otherwise must have one type, to the widest among them; others take what comes. f64 is never made
 * narrower. Casts are recorded: the gradient of an f32 leaf is f32. A leaf of f32 is cast once, until the outermost
 * autocast ends or an operation or optimizer overwrites the leaf (a write through a pointer is not seen:
 * tt_clear_autocast_cache()). Casts made while no scope is open live until then, too. Pairs nest, and are the thread's
 * own. Call backward outside of it; inside, too, backward runs in the types of forward. Segments of tt_recompute() are
 * repeated under the autocast that they first ran under, and so are functions of one's own in backward. Returns what
 * tt_autocast_end() takes. PyTorch: torch.autocast("cpu", dtype).
 *   int before = tt_autocast_begin(TT_BF16);     tt_autocast_begin(TT_BF16, .disabled = true) */
TT_API int tt_autocast_begin_with(const tt_autocast_begin_args *args, size_t size);
#define TT_AUTOCAST_BEGIN_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_autocast_begin(...) tt_autocast_begin_with(TT_ARGS(tt_autocast_begin_args, .dtype = __VA_ARGS__))
#endif

/* End it; `before` is what its begin returned. */
TT_API void tt_autocast_end(int before);

/* TT_AUTOCAST(TT_BF16); does both for the rest of the enclosing block, however it is left. gcc and clang. */
#if defined(__GNUC__) && !defined(__cplusplus)
/* What it runs at the block's end: tt_autocast_end(*before). */
TT_API void tt_autocast_cleanup(const int *before);
#define TT_AUTOCAST(...) \
    __attribute__((cleanup(tt_autocast_cleanup), unused)) const int tt_autocast_ = tt_autocast_begin(__VA_ARGS__)
#endif

/* Is autocast on in this thread, and to which type does it cast (TT_F32: it is off)? PyTorch:
 * is_autocast_cpu_enabled, get_autocast_cpu_dtype. */
TT_API bool tt_is_autocast_enabled(void);
TT_API tt_dtype tt_get_autocast_dtype(void);

/* Forget this thread's casts of leaves. PyTorch: clear_autocast_cache. */
TT_API void tt_clear_autocast_cache(void);

/* ---- anomaly mode ---- */

/* Look for NaN in every gradient that a backward pass of this process makes, and note where operators are called: the
 * pass ends at the first NaN with TT_ERR_NAN, which names the operator whose backward made it, its input, and the call
 * (`addr2line -e PROGRAM` turns its addresses into lines). Slow. Calls that were recorded before have no place.
 * PyTorch: torch.autograd.set_detect_anomaly. Thread-safe. */
TT_API void tt_set_detect_anomaly(bool on);

/* Is it on? PyTorch: torch.is_anomaly_enabled. Thread-safe. */
TT_API bool tt_is_anomaly_enabled(void);

/* ---- recomputation: memory for time ---- */

/* Compute something from the n inputs of tt_recompute(): NULL and an error on failure. It is called a second time in
 * backward, and must do the same then. */
typedef tt_tensor *(*tt_segment)(void *arg, tt_tensor *const *in, int64_t n);

/* What `forward` makes of n inputs, with a record that holds these alone: backward runs it again, recorded, with the
 * thread's default generator as it was. Gradients are those of the plain call, bit for bit. `arg` is borrowed for as
 * long as the record lives. Parameters that `forward` uses get their gradients if any input requires one; those that
 * are listed as inputs are seen by tt_reachable_leaves(), too. tt_module_recompute() (nn.h) does it for a module.
 * PyTorch: torch.utils.checkpoint.checkpoint.
 *   tt_tensor *y = tt_recompute(block, &settings, x, weight);
 * Errors: TT_ERR_INVALID no function or inputs; what `forward` records. In backward: TT_ERR_STATE an input was
 * overwritten since, or `forward` gave another shape. */
TT_API tt_tensor *tt_recompute_with(tt_segment forward, void *arg, tt_tensor *const *in, int64_t n);
#ifndef __cplusplus
#define tt_recompute(forward, arg, ...)                               \
    tt_recompute_with((forward), (arg), (tt_tensor *[]){__VA_ARGS__}, \
                      (int64_t)(sizeof((tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)))
#endif

/* ---- operators of one's own ---- */

/* A recorded call of such an operator, while its forward or backward runs. */
typedef struct tt_node tt_node;

/* Forward and backward together. Both run with nothing being recorded and inside a scope of their own. PyTorch:
 * torch.autograd.Function. */
typedef struct tt_function {
    size_t size;      /* sizeof(tt_function): TT_FUNCTION(.name = ...) sets it */
    const char *name; /* "my_swish", for errors; all is borrowed for as long as records of it live */

    /* Make outputs from inputs: out[0..outputs) are NULL before, and tensors made here or views after. What backward
     * needs is kept by tt_node_save() and tt_node_state(). */
    tt_status (*forward)(tt_node *node, tt_tensor *const *in, tt_tensor **out);

    /* From tt_node_grad() make the inputs' gradients, and give them by tt_node_give(). NULL: the outputs require
     * none. */
    tt_status (*backward)(tt_node *node);

    void (*destroy)(void *state); /* optional: what state points to goes with the record */
    int outputs;                  /* 0 = 1 */
    size_t state_bytes;           /* of tt_node_state(), zeroed at first */
} tt_function;
#define TT_FUNCTION(...) ((tt_function){.size = sizeof(tt_function), __VA_ARGS__})

/* Run `function` on `n` inputs (NULLs among them are NULL for forward, too), and record the call if one requires a
 * gradient. out: (outputs), owned as any operator's result; all NULL after a failure. Errors: what forward returned;
 * TT_ERR_INVALID a function without size, name or forward, or no `in` or `out`. */
TT_API TT_NODISCARD tt_status tt_apply_many(const tt_function *function, const void *arg, tt_tensor *const *in,
                                            int64_t n, tt_tensor **out);

/* The same for one output, as an expression: NULL if an input is NULL. `arg` (may be NULL) is for forward:
 * tt_node_arg().
 *   tt_tensor *y = tt_apply(&swish, &beta, x); */
TT_API tt_tensor *tt_apply_with(const tt_function *function, const void *arg, tt_tensor *const *in, int64_t n);
#ifndef __cplusplus
#define tt_apply(function, arg, ...)                               \
    tt_apply_with((function), (arg), (tt_tensor *[]){__VA_ARGS__}, \
                  (int64_t)(sizeof((tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)))
#endif

/* In forward: return the argument of the call. */
TT_API const void *tt_node_arg(const tt_node *node);

/* In forward: keep x for backward, as number 0, 1, ... in the order of the calls; `name` (borrowed while the
 * record lives) is for errors. Errors: TT_ERR_INVALID x is NULL, or too many are kept; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_node_save(tt_node *node, tt_tensor *x, const char *name);

/* In both: state_bytes that are the record's. */
TT_API void *tt_node_state(tt_node *node);

/* In backward: return what was saved as number i (borrowed); NULL and TT_ERR_STATE if it was overwritten since,
 * TT_ERR_INVALID if there is no such number. */
TT_API tt_tensor *tt_node_saved(tt_node *node, int i);

/* In backward: return the gradient of an output (borrowed). NULL: it got none, which means zeros. */
TT_API tt_tensor *tt_node_grad(tt_node *node, int output);

/* In backward: does an input want a gradient? A gradient that is not wanted need not be computed. */
TT_API bool tt_node_wants(const tt_node *node, int input);

/* In backward: give an input its gradient (borrowed or made here; of the input's shape, dtype and device), once for
 * each input at most; one that wants none is left alone. Errors: TT_ERR_SHAPE, TT_ERR_DTYPE; TT_ERR_STATE called in
 * forward; TT_ERR_INVALID no such input; NULL: as tt_item(). */
TT_API TT_NODISCARD tt_status tt_node_give(tt_node *node, int input, tt_tensor *gradient);

TT_END_DECLS
#endif
