/* tutti/zero.h: training in which no rank holds all of the optimizer's state, or of the gradients (ZeRO: Rajbhandari
 * et al., SC 2020).
 *
 * Every rank owns an equal slice of each bucket of parameters of a tt_ddp() wrapper. It keeps optimizer state for that
 * slice only, updates it, and takes the others' slices from their owners. The parameters lie in the group's symmetric
 * memory, so they arrive in place. Slices are ranges of elements, not whole parameters, so all ranks have the same
 * share to a cache line. After any number of steps the parameters are bitwise those of the same optimizer over whole
 * parameters; of tt_lamb(), which adds up norms in another order, to rounding.
 *
 * Threads. As a wrapper: one thread at a time; what is collective must not overlap other calls on the group. */
#ifndef TUTTI_ZERO_H
#define TUTTI_ZERO_H

#include <tutti/optim.h>
#include <tutti/parallel.h>

TT_BEGIN_DECLS

/* Make an optimizer over `params`, with its groups. `params` has one tensor (n) for each parameter of the wrapper that
 * requires a gradient, in their order and under their names: this rank's slice, which may have no elements. NULL: it
 * failed. */
typedef tt_optimizer *(*tt_zero_make_fn)(const tt_named_tensors *params, void *user);

typedef struct tt_zero_optimizer_args {
    tt_module *ddp;       /* required: a wrapper that tt_ddp(), or tt_fully_shard(), made */
    tt_zero_make_fn make; /* required: called once, before this returns */
    void *user;           /* required: handed to `make` */
    TT_OPTIONS;
    int stage;   /* 1: state is sliced; 2: gradients too; 3: parameters too. 0 = 1, or 3 with tt_fully_shard() */
    char tt_end; /* not an option: see base.h */
} tt_zero_optimizer_args;

/* An optimizer whose state is spread over the ranks of a wrapper. Collective.
 *   static tt_optimizer *adam(const tt_named_tensors *params, void *user) { return tt_adam(params, *(double *)user); }
 *   tt_optimizer *opt = tt_zero_optimizer(ddp, adam, &lr, .stage = 2);
 * Returns the optimizer that `make` returned, now with slices behind it; the caller frees it. Schedulers, gradient
 * scalers, options and tt_optimizer_zero_grad() work as with any other. On it are collective: tt_optimizer_step(),
 * tt_grad_scaler_unscale_(), tt_grad_scaler_step(), tt_optimizer_free() (which never fails). All ranks must set options
 * alike. If one of these, or tt_zero_clip_grad_norm_(), fails on some ranks only, the others get TT_ERR_STATE, which
 * names one. Changes made before the failure stay, and parameters may differ between ranks until a step succeeds.
 * tt_lamb() adds up norms within a step: a rank that fails there ends the group by tt_group_abort(), with its error as
 * the reason.
 *
 * Stage 1 leaves gradients whole: averaged in the wrapper's buckets, by its communication hook if it has one. Stage 2
 * reduces each bucket to its owners' slices as soon as it is ready, and gives the bucket's memory back to the system if
 * all gradients are 16 MiB or more (with fewer it costs more than it saves). After backward only slices have a
 * tt_grad(). A second backward before tt_zero_grad() adds to them. Passes without averaging (tt_ddp_set_sync()) collect
 * whole gradients, which take their memory. Parameters that take no part in a pass are treated as by tt_ddp().
 * Parameters may lie on a device; slices and their state lie there, too. With the native engine, transfers go over
 * pinned memory of the host, as large as the parameters, and stage 2 keeps the memory of whole gradients. The state
 * that tt_zero_consolidate() gathers lies on the host.
 * A wrapper of tt_fully_shard() (fully_shard.h) has stage 3, and no other wrapper has it.
 * Clip by tt_zero_clip_grad_norm_(). tt_optimizer_master_params() are the slices, or their masters of f32.
 *
 * Parameters may be written to as usual (a state dict may be loaded before or after). While the optimizer lives, the
 * module must not be converted (tt_module_to(), tt_amp_initialize(): before, with .optimizer NULL) or moved to another
 * group; else tt_optimizer_step() is TT_ERR_STATE. Wrapper, module and optimizer are freed in any order, on all ranks
 * alike; a wrapper that outlives a stage 2 optimizer averages whole gradients again.
 * NULL on failure, on all ranks: TT_ERR_MISMATCH the ranks' stages, optimizers, options or groups differ (the first
 * difference, and the rank), or some fail in one of the ways below and others don't (the rank, and its error). If all
 * fail alike: the error of `make`; TT_ERR_INVALID no `make`, an unknown stage, an optimizer over other tensors;
 * TT_ERR_STATE the wrapper has such an optimizer already, or one of its parameters is not contiguous or shares its
 * memory with another tensor, by name; TT_ERR_UNSUPPORTED stage 2 beside a communication hook; those of
 * tt_group_alloc(). Without a group the rank fails alone: TT_ERR_INVALID no wrapper, TT_ERR_UNSUPPORTED one of
 * tt_elastic_ddp(), whose ranks come and go. PyTorch:
 * torch.distributed.optim.ZeroRedundancyOptimizer (stage 1, whose owners have whole parameters). */
TT_API tt_optimizer *tt_zero_optimizer_with(const tt_zero_optimizer_args *args, size_t size);
#define TT_ZERO_OPTIMIZER_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_zero_optimizer(ddp_, make_, ...) \
    tt_zero_optimizer_with(TT_ARGS(tt_zero_optimizer_args, .ddp = (ddp_), .make = (make_), .user = __VA_ARGS__))
#endif

typedef struct tt_zero_clip_grad_norm_args {
    tt_optimizer *optimizer; /* required: one of tt_zero_optimizer() */
    double max_norm;         /* required: >= 0 */
    TT_OPTIONS;
    double norm_type;        /* > 0, also INFINITY; 0 = 2 */
    bool error_if_nonfinite; /* a norm that is infinite or NaN is TT_ERR_INVALID on all ranks; nothing is changed */
    double *total_norm;      /* receives the norm before clipping, the same on all ranks */
    char tt_end;             /* not an option: see base.h */
} tt_zero_clip_grad_norm_args;

/* tt_clip_grad_norm_() by the norm of the whole gradients of all parameters that the optimizer has, added up over the
 * ranks' slices in f64. Collective. After backward (and tt_grad_scaler_unscale_()), before the step.
 *   tt_zero_clip_grad_norm_(opt, 1.0, .total_norm = &norm)
 * Errors: those of tt_clip_grad_norm_() and of a collective; TT_ERR_INVALID another optimizer; TT_ERR_STATE another
 * rank failed, by its number. */
TT_API TT_NODISCARD tt_status tt_zero_clip_grad_norm_with(const tt_zero_clip_grad_norm_args *args, size_t size);
#define TT_ZERO_CLIP_GRAD_NORM_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_zero_clip_grad_norm_(optimizer_, ...) \
    tt_zero_clip_grad_norm_with(                 \
        TT_ARGS(tt_zero_clip_grad_norm_args, .optimizer = (optimizer_), .max_norm = __VA_ARGS__))
#endif

/* ---- checkpoints ---- */

/* All ranks, for tt_zero_consolidate(). */
#define TT_ALL_RANKS (-1)

/* Gather the whole state to rank `root` of the group, or TT_ALL_RANKS. Collective. Until the next step,
 * tt_optimizer_state_dict() there returns the state of the same optimizer over whole parameters, with its names, shapes
 * and bits, so that everything that saves a plain optimizer saves this one:
 *   tt_status status = tt_zero_consolidate(opt, 0);
 *   if (!status && rank == 0)
 *       status = tt_checkpoint_save(path, model, opt, &progress);
 * On other ranks, and without this call, tt_optimizer_state_dict() is NULL with TT_ERR_STATE. Loading needs no call:
 * tt_checkpoint_load() and tt_optimizer_load_state_dict() of such a state, or of a plain optimizer's, on every rank of
 * a world of any size, take the rank's slices. Errors: TT_ERR_INVALID another optimizer, no such rank; TT_ERR_MEMORY;
 * those of a collective. PyTorch: ZeroRedundancyOptimizer.consolidate_state_dict. */
TT_API TT_NODISCARD tt_status tt_zero_consolidate(tt_optimizer *optimizer, int root);

/* Save the state without gathering it. With `path` "NAME.safetensors", each rank writes its slices to
 * "NAME-00001-of-00004.safetensors", and rank 0 then writes the entries that are alike on all ranks to `path`.
 * Collective; no rank needs memory for more than its share. Returns when all files are in place; loading detects a save
 * that was interrupted. Errors: TT_ERR_INVALID another optimizer, a path without ".safetensors"; TT_ERR_IO, with the
 * path; those of a collective. If a rank fails, the others get TT_ERR_STATE, which names it. */
TT_API TT_NODISCARD tt_status tt_zero_save_sharded(tt_optimizer *optimizer, const char *path);

/* Load a state that tt_zero_save_sharded() saved, in a world of any size, whose ranks all see the files. Collective. A
 * rank loads everything or nothing. Errors: TT_ERR_INVALID another optimizer, a path without ".safetensors"; TT_ERR_IO,
 * TT_ERR_FORMAT a file is missing, is of another save than the others, or has slices that don't join those of the files
 * before it; those of tt_optimizer_load_state_dict(); TT_ERR_STATE another rank failed, and is named. */
TT_API TT_NODISCARD tt_status tt_zero_load_sharded(tt_optimizer *optimizer, const char *path);

TT_END_DECLS
#endif
