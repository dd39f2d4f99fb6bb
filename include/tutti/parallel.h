/* tutti/parallel.h: collectives on tensors, and data-parallel training of a module on all ranks of a group.
 *
 * Threads. As in comm.h: calls on a group have an order, so they must not overlap; a backward pass through a wrapper is
 * such a call. Different threads may use different groups. One thread at a time uses a wrapped module. Calls without
 * .work block until the result is there, at most for their timeout. */
#ifndef TUTTI_PARALLEL_H
#define TUTTI_PARALLEL_H

#include <tutti/comm.h>
#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/reducer.h>

TT_BEGIN_DECLS

/* ---- collectives on tensors
 *
 * The calls of comm.h for tensors of any layout and element type, with the same options (.work, .timeout_ms). A tensor
 * that is not contiguous is copied, which an asynchronous call (.work) can't do: TT_ERR_UNSUPPORTED. If a back end
 * takes a device's memory, tensors on that device are passed as they are, with the device's stream. Otherwise they are
 * copied over the host, which waits for the device when the call is made; the result is back before the work is seen to
 * be done. Tensors are borrowed until the call returns, or its work is done. Nothing is recorded for backward; a
 * backward pass uses the values that a tensor has when the pass runs.
 * Ranks are compared as in comm.h: op, type, count and root must be alike. Shapes may differ, as with PyTorch's back
 * ends, since another rank may make the same call on plain memory. Elements correspond in the order of contiguous
 * memory, so (2, 6) and (3, 4) are added without an error.
 * Errors: those of the call in comm.h; NULL as a tensor: as tt_item(); TT_ERR_SHAPE and TT_ERR_DTYPE tensors that don't
 * fit each other, with both shapes; TT_ERR_INVALID tensors on two devices, or a tensor that is written to and repeats
 * elements in memory (tt_expand()). */

typedef struct tt_tensor_all_reduce_args {
    tt_group *group;
    tt_tensor *x;
    tt_reduce_op op;
    TT_OPTIONS;
    double factor; /* this rank's, of TT_PREMUL_SUM */
    TT_CALL_OPTIONS;
} tt_tensor_all_reduce_args;

/* x := op over all ranks, on every rank.
 *   tt_tensor_all_reduce(group, x, TT_AVG)
 * In groups of the native engine whose ranks gave a CUDA device as .device, sums and averages of 64 KiB or more of
 * contiguous floats, without .work, are computed on the devices. All ranks' tensors must then lie on CUDA devices;
 * after an error the tensor's memory is not used again. */
TT_API TT_NODISCARD tt_status tt_tensor_all_reduce_with(const tt_tensor_all_reduce_args *args, size_t size);

typedef struct tt_tensor_reduce_args {
    tt_group *group;
    tt_tensor *x;
    tt_reduce_op op;
    int root;
    TT_OPTIONS;
    double factor; /* this rank's, of TT_PREMUL_SUM */
    TT_CALL_OPTIONS;
} tt_tensor_reduce_args;

/* x on `root` := op over all ranks.
 *   tt_tensor_reduce(group, x, TT_SUM, 0) */
TT_API TT_NODISCARD tt_status tt_tensor_reduce_with(const tt_tensor_reduce_args *args, size_t size);

typedef struct tt_tensor_broadcast_args {
    tt_group *group;
    tt_tensor *x;
    int root;
    TT_OPTIONS;
    TT_CALL_OPTIONS;
} tt_tensor_broadcast_args;

/* x := rank `root`'s x.
 *   tt_tensor_broadcast(group, x, 0) */
TT_API TT_NODISCARD tt_status tt_tensor_broadcast_with(const tt_tensor_broadcast_args *args, size_t size);

typedef struct tt_tensor_all_gather_args {
    tt_group *group;
    const tt_tensor *x;
    tt_tensor *out;
    TT_OPTIONS;
    TT_CALL_OPTIONS;
} tt_tensor_all_gather_args;

/* Concatenate all ranks' x (D, ...) into `out` (world_size * D, ...) or (world_size, D, ...), on every rank. PyTorch:
 * all_gather_into_tensor.
 *   tt_tensor_all_gather(group, x, out) */
TT_API TT_NODISCARD tt_status tt_tensor_all_gather_with(const tt_tensor_all_gather_args *args, size_t size);

typedef struct tt_tensor_gather_args {
    tt_group *group;
    const tt_tensor *x;
    tt_tensor *out;
    int root;
    TT_OPTIONS;
    TT_CALL_OPTIONS;
} tt_tensor_gather_args;

/* As tt_tensor_all_gather(), on `root` only; elsewhere `out` may be NULL. PyTorch: gather.
 *   tt_tensor_gather(group, x, out, 0) */
TT_API TT_NODISCARD tt_status tt_tensor_gather_with(const tt_tensor_gather_args *args, size_t size);

typedef struct tt_tensor_scatter_args {
    tt_group *group;
    const tt_tensor *x;
    tt_tensor *out;
    int root;
    TT_OPTIONS;
    TT_CALL_OPTIONS;
} tt_tensor_scatter_args;

/* Give part r of the root's x (world_size * D, ...), or (world_size, D, ...), to rank r's `out` (D, ...). On other
 * ranks x may be NULL. PyTorch: scatter.
 *   tt_tensor_scatter(group, x, out, 0) */
TT_API TT_NODISCARD tt_status tt_tensor_scatter_with(const tt_tensor_scatter_args *args, size_t size);

typedef struct tt_tensor_reduce_scatter_args {
    tt_group *group;
    const tt_tensor *x;
    tt_tensor *out;
    tt_reduce_op op;
    TT_OPTIONS;
    double factor; /* this rank's, of TT_PREMUL_SUM */
    TT_CALL_OPTIONS;
} tt_tensor_reduce_scatter_args;

/* Reduce all ranks' x (world_size * D, ...), or (world_size, D, ...), by op, and give part r of the result to rank r's
 * `out` (D, ...). PyTorch: reduce_scatter_tensor.
 *   tt_tensor_reduce_scatter(group, x, out, TT_SUM) */
TT_API TT_NODISCARD tt_status tt_tensor_reduce_scatter_with(const tt_tensor_reduce_scatter_args *args, size_t size);

typedef struct tt_tensor_all_to_all_args {
    tt_group *group;
    const tt_tensor *x;
    tt_tensor *out;
    TT_OPTIONS;
    TT_CALL_OPTIONS;
} tt_tensor_all_to_all_args;

/* Send part r of x to rank r, and receive rank r's part into part r of `out`. x and `out` have the same number of
 * elements; dimension 0 of both is a multiple of world_size. PyTorch: all_to_all_single.
 *   tt_tensor_all_to_all(group, x, out) */
TT_API TT_NODISCARD tt_status tt_tensor_all_to_all_with(const tt_tensor_all_to_all_args *args, size_t size);

typedef struct tt_tensor_send_args {
    tt_group *group;
    const tt_tensor *x;
    int peer;
    TT_OPTIONS;
    int tag; /* >= 0 */
    TT_CALL_OPTIONS;
} tt_tensor_send_args;

/* Send x to rank `peer`.
 *   tt_tensor_send(group, x, 1, .tag = 7) */
TT_API TT_NODISCARD tt_status tt_tensor_send_with(const tt_tensor_send_args *args, size_t size);

typedef struct tt_tensor_recv_args {
    tt_group *group;
    tt_tensor *x;
    int peer; /* or TT_ANY_SOURCE */
    TT_OPTIONS;
    int tag;     /* >= 0 */
    int *source; /* without .work: receives the sender's rank */
    TT_CALL_OPTIONS;
} tt_tensor_recv_args;

/* Receive into x from rank `peer`.
 *   tt_tensor_recv(group, x, TT_ANY_SOURCE, .source = &from) */
TT_API TT_NODISCARD tt_status tt_tensor_recv_with(const tt_tensor_recv_args *args, size_t size);

/* ---- distributed data-parallel training ---- */

typedef struct tt_ddp_args {
    tt_module *module; /* required: kept until the wrapper is freed */
    tt_group *group;   /* required: borrowed; once it is destroyed the wrapper can only be freed */
    TT_OPTIONS;
    size_t bucket_cap_bytes;   /* see tt_reducer_new() */
    bool no_broadcast_buffers; /* leave each rank its own buffers after wrapping */
    int virtual_ranks;         /* train with the bits that this many ranks would get: see below; 0: off */
    uint64_t shard_seed;       /* seeds the random numbers of virtual ranks; 0: the generator is left alone */
    /* lists of names, NULL last, copied: TT_NAMES(). See below */
    const char *const *ignored;          /* parameters and buffers that are neither averaged nor taken from rank 0 */
    const char *const *delay_all_reduce; /* parameters that are averaged last */
    char tt_end;                         /* not an option: see base.h */
} tt_ddp_args;

/* Wrap a module for distributed data-parallel training. Collective: all ranks take rank 0's parameters and buffers.
 * From then on every tt_backward() through the wrapper averages the gradients of all parameters over the ranks before
 * it returns, overlapped with the backward pass; every rank gets bitwise the same. All ranks must run the same number
 * of backward passes. PyTorch: torch.nn.parallel.DistributedDataParallel.
 *   tt_ddp(model, world)
 * Gradients (tt_grad) become views into the reducer's buckets. They move when the first step has ended, as buckets are
 * then filled in the order in which gradients became ready on rank 0. The lists and the state_dict of the wrapper are
 * the wrapped module's, without a prefix. Each recorded forward in training mode takes rank 0's buffers, if there are
 * any (this, too, is collective; see tt_ddp_set_sync()). A forward in evaluation mode or with TT_NO_GRAD does not:
 * after a step each rank has the running statistics of its own batches. To evaluate on several ranks, take rank 0's
 * buffers first, by tt_tensor_broadcast() of tt_module_buffers(), as tt_trainer_run() does. NULL on failure:
 * TT_ERR_MISMATCH names the first parameter or buffer whose name or shape differs, and the rank; TT_ERR_INVALID no
 * parameter; TT_ERR_UNSUPPORTED a parameter whose type can't be averaged; TT_ERR_STATE the module, or a part of it, is
 * wrapped already; and those of a collective. A call that one rank alone refuses is TT_ERR_MISMATCH on the others, with
 * its error.
 * Parameters may lie on a device, all on one; ranks may have different ones, or share one. Then each bucket has as much
 * memory there, and its average has the bits of an average on the host. Up to eight ranks of one host that reach each
 * other's devices average there; otherwise, and with a communication hook, the bucket is copied to the host during the
 * pass, and averaged there (docs/gpu.md). If the group's back end takes the device's memory (nccl), buckets lie on the
 * device only, and are averaged there in that back end's order of sums; each rank needs its own device. The host does
 * not wait, so an error of such a call may be reported by a later one. TT_ERR_INVALID parameters on several devices;
 * TT_ERR_UNSUPPORTED with a back end that takes no memory of the host: parameters there, .virtual_ranks, hooks without
 * .takes_devices. A backward pass that fails on one rank alone (an operator, a hook, no memory) aborts the group: the
 * others get TT_ERR_ABORTED with that rank and its error. All must then destroy the group.
 * Parameters that take no part in a pass need no flag, and may differ between ranks and passes. If one rank leaves a
 * parameter out, it gives its earlier gradient, or zero, and receives the average. If all ranks leave it out, it keeps
 * its gradient, or none. No bucket waits for such parameters, unless the pass goes through tt_recompute() or
 * tt_apply(), where only the end of the pass shows which were left out. Two limits: a rank whose whole pass reaches no
 * parameter of the wrapper takes no part in the averaging, and its peers wait for it; and if one pass goes through two
 * wrappers, and ranks leave out different parameters, each wrapper needs a group of its own (tt_new_group()), as the
 * order of averages on one group could differ. PyTorch: find_unused_parameters=True. */
TT_API tt_module *tt_ddp_with(const tt_ddp_args *args, size_t size);

/* ---- parameters that are left out, or averaged last
 *
 * Both options are lists of names of tt_module_parameters() and tt_module_buffers(); a child's name stands for
 * everything in it:
 *   tt_ddp(model, world, .ignored = TT_NAMES("table.weight", "running"), .delay_all_reduce = TT_NAMES("decoder"))
 *   - .ignored: parameters and buffers that are never taken from rank 0 nor averaged; they may have different shapes on
 *     the ranks, and belong to another wrapper. PyTorch:
 *     DistributedDataParallel._set_params_and_buffers_to_ignore_for_model.
 *   - .delay_all_reduce: parameters that are averaged when the pass has ended, in buckets of their own after all
 *     others, so that these don't wait for them. For weights that are used in many places, also in several segments of
 *     tt_recompute() that reach them through their module. Each segment gives a part of the gradient, which is
 *     TT_ERR_STATE without this option. PyTorch: delay_all_reduce_named_params; no param_to_hook_all_reduce is needed.
 * Errors, on all ranks: TT_ERR_MISMATCH names a parameter or buffer in which the lists differ; TT_ERR_INVALID a name
 * that is none in the module, or a parameter in both; TT_ERR_UNSUPPORTED with .virtual_ranks. */
/* A list of names that ends with NULL; it lives as long as the enclosing block. C only (C++: a vector of strings). */
#define TT_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- sparse gradients
 *
 * Some parameters get gradients of some of their rows, such as the weight of tt_nn_embedding(.sparse = true)
 * (tt_sparse_grad_values(), autograd.h). They are averaged after the buckets: in one call for all such parameters each
 * rank tells its numbers of rows; then two calls for each parameter that any rank has used gather all ranks' rows. The
 * result is a gradient of the rows that any rank gave. It is added up in the order of ranks, with the same bits on all
 * of them, in memory for all ranks' rows, never for the whole parameter. If a rank has no memory to give its rows, the
 * step fails on all ranks, and names it. Communication hooks act on the other gradients.
 * TT_ERR_UNSUPPORTED, by the parameter's name: one of 16-bit floats, .virtual_ranks, tt_post_local_sgd(),
 * tt_zero_optimizer().
 * PyTorch: DistributedDataParallel with nn.Embedding(sparse=True). */

/* ---- virtual ranks: the same bits at any world size
 *
 * With .virtual_ranks = V a step is made of V shards, each the work of one of V ranks with a batch of its own. Rank r
 * of W has shards r*V/W to (r+1)*V/W - 1, and runs a forward and a backward pass for each of them, in this order.
 * Before the first the program sets gradients to none (tt_optimizer_zero_grad()); tt_backward() of the last averages
 * over all V shards. Parameters are then bitwise the same for all W up to V, on any transport and back end (which then
 * only moves bytes), and for any bucket cap. They are also those of V ranks without this option, if sums have the order
 * of docs/collectives.md. With V = W nothing additional is done.
 *   - Gradients of 16-bit floats are rounded once a step.
 *   - A shard begins with the buffers that shard 0 left in the step before; after a step all ranks have shard 0's.
 *   - The first recorded forward after a backward pass begins the next shard. With .shard_seed it calls
 *     tt_manual_seed() with shard_seed + (step * V + shard) * 0x9e3779b97f4a7c15.
 *   - Accumulation: as on V ranks, each shard adds up the gradients of its own batches before the shards are summed. A
 *     shard has some passes with tt_ddp_set_sync(ddp, false), which don't end it, and then one with true, so that all
 *     batches of a shard follow each other. Buffers and random numbers go on from one batch to the next.
 *   - Data: tt_distributed_sampler(..., .virtual_ranks = V) gives each shard its batches.
 * Elements are summed in the shards' own passes, so these must be the same wherever they run: the same batches, and the
 * same OMP_NUM_THREADS. It costs memory for the sums of a rank's shards, at most 1 + log2(V/W) times that of the
 * gradients, and twice that for the exchange if W has factors that V's tree doesn't have at its root.
 * Errors, of wrapping: TT_ERR_MISMATCH other .virtual_ranks, .shard_seed or threads on another rank, on all;
 * TT_ERR_INVALID fewer than ranks, more than 1024, or with .no_broadcast_buffers. Of a forward: TT_ERR_STATE there are
 * gradients from before the step. Communication hooks are TT_ERR_UNSUPPORTED: they would compress sums of shards,
 * which differ with the number of ranks. tt_join_new() is, too: all shards have the same number of batches. */

/* Return how many shards, and so passes, a step has on this rank; *first (may be NULL) := the first one's number.
 * Without virtual ranks 1, and the rank; 0 if `ddp` is no wrapper, or bound to no group. */
TT_API int tt_ddp_shards(tt_module *ddp, int *first);

/* Set the number of the next step for .shard_seed, when a run goes on from a checkpoint. Not within a step. All ranks
 * set it alike. Errors: TT_ERR_INVALID no wrapper, a step below 0; TT_ERR_STATE a step is under way. */
TT_API TT_NODISCARD tt_status tt_ddp_set_step(tt_module *ddp, int64_t step);

/* The reducer behind a wrapper (borrowed), for tracing; NULL if `ddp` is no wrapper. After the first step its buckets
 * are formed again, in the order in which gradients became ready on rank 0. */
TT_API tt_reducer *tt_ddp_reducer(tt_module *ddp);

/* Statistics of a wrapper's last step. */
typedef struct tt_ddp_logging_data {
    int64_t steps;          /* that have averaged so far */
    int64_t parameters;     /* that require a gradient */
    int64_t unused;         /* those of them that no rank has used */
    int64_t gradient_bytes; /* of all buckets */
    int64_t buckets;
    int64_t forward_ns;   /* in recorded forwards through the wrapper since the step before */
    int64_t backward_ns;  /* in the pass that averages, from its first gradient to its last */
    int64_t averaging_ns; /* from the beginning of the first bucket to the end of the last */
    int64_t overlap_ns;   /* the part of averaging_ns in which gradients were still computed */
} tt_ddp_logging_data;

/* Fill *out; zeros before the first step. `tutti top` shows the same, as means over some steps. Errors: TT_ERR_INVALID
 * no wrapper, or `out` is NULL. PyTorch: DistributedDataParallel._get_ddp_logging_data. */
TT_API TT_NODISCARD tt_status tt_ddp_get_logging_data(tt_module *ddp, tt_ddp_logging_data *out);

/* With `sync` false, backward passes through the wrapper average nothing: they add to this rank's gradients. The first
 * pass with `sync` true again averages all gradients added so far, so that several batches cost one exchange. Buffers
 * are taken from rank 0 once for those passes, at the first forward. All ranks set it alike. Errors: TT_ERR_INVALID no
 * wrapper. PyTorch: DistributedDataParallel.no_sync.
 *   tt_ddp_set_sync(ddp, last_batch_of_this_step) */
TT_API TT_NODISCARD tt_status tt_ddp_set_sync(tt_module *ddp, bool sync);

typedef struct tt_ddp_register_comm_hook_args {
    tt_module *ddp;           /* required: a wrapper */
    const tt_comm_hook *hook; /* required: NULL: average again as without a hook */
    void *state;              /* required: handed to the hook; borrowed, unless there is .destroy */
    TT_OPTIONS;
    const char *settings;         /* what else must be alike on all ranks, for people: "rank 4, from step 10" */
    void (*destroy)(void *state); /* release `state`: when another hook is registered, the wrapper is freed, and on
                                     failure */
    char tt_end;                  /* not an option: see base.h */
} tt_ddp_register_comm_hook_args;

/* Average the gradients of a wrapper by a communication hook (reducer.h) from now on. Collective. If the wrapper's
 * group changes, the hook is detached from the old group's buckets and attached to the new one's.
 *   tt_ddp_register_comm_hook(ddp, &top_k, state, .settings = "1 %", .destroy = free)
 * Errors: those of tt_reducer_set_comm_hook(); TT_ERR_INVALID no wrapper. PyTorch:
 * DistributedDataParallel.register_comm_hook. */
TT_API TT_NODISCARD tt_status tt_ddp_register_comm_hook_with(const tt_ddp_register_comm_hook_args *args, size_t size);

typedef struct tt_ddp_step_in_backward_args {
    tt_module *ddp;          /* required: a wrapper that tt_ddp() made */
    tt_optimizer *optimizer; /* required: borrowed, and freeing it ends stepping; or NULL: end stepping */
    TT_OPTIONS;
    bool zero_grad; /* drop each parameter's gradient once it was stepped, as tt_zero_grad() */
    char tt_end;    /* not an option: see base.h */
} tt_ddp_step_in_backward_args;

/* Step `optimizer` inside tt_backward() from now on: a bucket's parameters are stepped when its averages are there,
 * while later buckets are still being averaged. When a pass that averages has returned, the step is complete, with the
 * bits of a tt_optimizer_step() after the pass. Passes after tt_ddp_set_sync(ddp, false) step nothing. Collective.
 * Ending this (NULL) is not collective, but all ranks must do so between the same steps.
 *   tt_ddp_step_in_backward(ddp, optimizer, .zero_grad = true)
 *   - Options of the optimizer (a scheduler's, too) may change between passes. Neither tt_optimizer_step() nor
 *     tt_optimizer_add_param_group() nor a tt_grad_scaler may be used with the optimizer meanwhile: TT_ERR_STATE. End
 *     this, or free the wrapper, before the program steps the optimizer itself.
 *   - Parameters of the optimizer that the wrapper doesn't average (frozen when it was made, .ignored, of another
 *     module) are stepped when the pass has ended, if they have a gradient. The wrapper's other parameters are
 *     averaged, and not stepped.
 *   - Calls that need all averages before a step, such as tt_clip_grad_norm_(), come too late.
 *   - A graph is walked once: a second pass through it (.retain_graph), or a part of it that needs the values of a
 *     parameter whose gradient was final before (one used through tt_detach()), is the TT_ERR_STATE of tensors that
 *     were overwritten.
 *   - After a failed pass some parameters may be a step ahead of others: go on from a checkpoint.
 *   - Communication hooks work. So does a tt_join, with .zero_grad, and without .examples, .divide_by_present and
 *     .end_early; its .after_step then steps nothing.
 * Errors: TT_ERR_MISMATCH optimizers or options differ, on all ranks; a call that one rank alone refuses is
 * TT_ERR_MISMATCH on the others, with its error. TT_ERR_INVALID no wrapper, or none of its parameters. TT_ERR_STATE the
 * optimizer steps in another wrapper's passes, a pass is under way, or the wrapper has no group yet; TT_ERR_MEMORY.
 * TT_ERR_UNSUPPORTED tt_zero_optimizer() (also one that is made later), tt_lamb(), which needs the norms of all
 * gradients, an optimizer of several wrappers' parameters, .virtual_ranks, an elastic job's wrapper, other joins.
 * PyTorch:
 * torch.distributed.optim._apply_optimizer_in_backward, DistributedDataParallel._register_fused_optim. */
TT_API TT_NODISCARD tt_status tt_ddp_step_in_backward_with(const tt_ddp_step_in_backward_args *args, size_t size);

/* tt_module_free(ddp) frees the wrapper, not the module; they may be freed in any order. Collective as
 * tt_reducer_free() is. */

#define TT_TENSOR_ALL_REDUCE_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_REDUCE_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_BROADCAST_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_ALL_GATHER_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_GATHER_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_SCATTER_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_REDUCE_SCATTER_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_ALL_TO_ALL_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_SEND_ARGS_INIT TT_ARGS_INIT
#define TT_TENSOR_RECV_ARGS_INIT TT_ARGS_INIT
#define TT_DDP_ARGS_INIT TT_ARGS_INIT
#define TT_DDP_REGISTER_COMM_HOOK_ARGS_INIT TT_ARGS_INIT
#define TT_DDP_STEP_IN_BACKWARD_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_ddp_register_comm_hook(ddp_, hook_, ...) \
    tt_ddp_register_comm_hook_with(                 \
        TT_ARGS(tt_ddp_register_comm_hook_args, .ddp = (ddp_), .hook = (hook_), .state = __VA_ARGS__))
#define tt_ddp_step_in_backward(ddp_, ...) \
    tt_ddp_step_in_backward_with(TT_ARGS(tt_ddp_step_in_backward_args, .ddp = (ddp_), .optimizer = __VA_ARGS__))
#define tt_ddp(module_, ...) tt_ddp_with(TT_ARGS(tt_ddp_args, .module = (module_), .group = __VA_ARGS__))

#define tt_tensor_all_reduce(group_, x_, ...) \
    tt_tensor_all_reduce_with(TT_CALL(tt_tensor_all_reduce_args, .group = (group_), .x = (x_), .op = __VA_ARGS__))
#define tt_tensor_reduce(group_, x_, op_, ...) \
    tt_tensor_reduce_with(                     \
        TT_CALL(tt_tensor_reduce_args, .group = (group_), .x = (x_), .op = (op_), .root = __VA_ARGS__))
#define tt_tensor_broadcast(group_, x_, ...) \
    tt_tensor_broadcast_with(TT_CALL(tt_tensor_broadcast_args, .group = (group_), .x = (x_), .root = __VA_ARGS__))
#define tt_tensor_all_gather(group_, x_, ...) \
    tt_tensor_all_gather_with(TT_CALL(tt_tensor_all_gather_args, .group = (group_), .x = (x_), .out = __VA_ARGS__))
#define tt_tensor_gather(group_, x_, out_, ...) \
    tt_tensor_gather_with(                      \
        TT_CALL(tt_tensor_gather_args, .group = (group_), .x = (x_), .out = (out_), .root = __VA_ARGS__))
#define tt_tensor_scatter(group_, x_, out_, ...) \
    tt_tensor_scatter_with(                      \
        TT_CALL(tt_tensor_scatter_args, .group = (group_), .x = (x_), .out = (out_), .root = __VA_ARGS__))
#define tt_tensor_reduce_scatter(group_, x_, out_, ...) \
    tt_tensor_reduce_scatter_with(                      \
        TT_CALL(tt_tensor_reduce_scatter_args, .group = (group_), .x = (x_), .out = (out_), .op = __VA_ARGS__))
#define tt_tensor_all_to_all(group_, x_, ...) \
    tt_tensor_all_to_all_with(TT_CALL(tt_tensor_all_to_all_args, .group = (group_), .x = (x_), .out = __VA_ARGS__))
#define tt_tensor_send(group_, x_, ...) \
    tt_tensor_send_with(TT_CALL(tt_tensor_send_args, .group = (group_), .x = (x_), .peer = __VA_ARGS__))
#define tt_tensor_recv(group_, x_, ...) \
    tt_tensor_recv_with(TT_CALL(tt_tensor_recv_args, .group = (group_), .x = (x_), .peer = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
