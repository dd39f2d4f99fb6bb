/* tutti/fully_shard.h: training in which no rank holds all parameters, gradients or optimizer state (ZeRO stage 3:
 * Rajbhandari et al., SC 2020; PyTorch's FSDP2, torch.distributed.fsdp.fully_shard).
 *
 * A model is divided into units, whose forwards follow each other: its layers. Every rank owns an equal slice, to a
 * cache line, of each unit's parameters, laid one after the other. A unit's parameters are gathered before its forward
 * runs, while the unit before it computes, and again before its backward; its gradients are averaged to the slices'
 * owners as soon as they are complete. Whole units lie in two places that they take in turn, so a rank needs memory for
 * its share and the two largest units. After any number of steps parameters are bitwise those that tt_ddp() and the
 * same optimizer give (tt_zero_optimizer() has the exceptions); if a forward uses a unit several times, to rounding.
 *
 * Threads. As a wrapper of tt_ddp(): one thread at a time; what is collective must not overlap other calls on the
 * group. */
#ifndef TUTTI_FULLY_SHARD_H
#define TUTTI_FULLY_SHARD_H

#include <tutti/zero.h>

TT_BEGIN_DECLS

typedef struct tt_fully_shard_args {
    tt_module *module; /* required: kept until the wrapper is freed */
    tt_group *group;   /* required: borrowed; once it is destroyed the wrapper can only be freed */
    TT_OPTIONS;
    /* The names of the units, like "h.0" (unit_count of them; copied), in the order of their forwards; no unit is
     * inside another. NULL: the children of the outermost sequentials and module lists that have parameters. Parameters
     * in no unit, or in several, make the last unit, which is whole from the wrapper's forward to the step */
    const char *const *units;
    int64_t unit_count;
    bool keep_after_forward;   /* units stay whole until the step: no second gathering, more memory */
    bool no_broadcast_buffers; /* leave each rank its own buffers after wrapping */
    char tt_end;               /* not an option: see base.h */
} tt_fully_shard_args;

/* Wrap a module whose parameters, gradients and optimizer state are spread over the group's ranks. Collective: all
 * ranks take rank 0's parameters and buffers.
 *   tt_module *sharded = tt_fully_shard(model, world);
 *   tt_optimizer *opt = tt_zero_optimizer(sharded, make_adam, &lr);
 * The optimizer is one of tt_zero_optimizer() (zero.h) over this rank's slices; clipping, consolidated and sharded
 * state work as described there. The wrapper is used as one of tt_ddp(): forward, tt_backward(), step. Passes before
 * tt_optimizer_zero_grad() add to the slices' gradients; parameters themselves have no tt_grad() after a pass. Buffers
 * are rank 0's again at each forward in training mode that is recorded. Lists and names are the wrapped module's.
 *
 * All ranks run the same units in the same order, in forward and backward passes. A unit that all leave out costs
 * nothing; one that only some leave out is TT_ERR_MISMATCH on all, with the units' names. A parameter of a unit may be
 * used by some ranks only: as with tt_ddp(), the others give zeros, and one that no rank uses keeps its gradient. A
 * unit may run several times in a pass; one can't run inside another. tt_recompute() within and around units works,
 * also under TT_NO_GRAD and in evaluation mode. tt_backward_deferred() is TT_ERR_UNSUPPORTED.
 *
 * A parameter has its values while its unit runs, and perhaps for a while after that. Using one without values (in an
 * operator, tt_tensor_data(), saving a state dict) is TT_ERR_STATE with its name; tt_fully_shard_gather() brings all
 * values. A wrapped module must not be converted, nor its parameters frozen, or trained again after freezing.
 * Wrapper, module and optimizer are freed in any order, on all ranks alike. Parameters that are not gathered when the
 * wrapper is freed lose their values; using them is TT_ERR_STATE. After a failed pass or collective the
 * wrapper can only be freed.
 * NULL on failure: TT_ERR_MISMATCH models, units or options differ between ranks (the first difference, and the rank);
 * a call that one rank alone refuses is TT_ERR_MISMATCH on the others, with its error. TT_ERR_INVALID no group, no
 * parameter, a unit that is listed twice, is inside another or has no parameters; TT_ERR_NOT_FOUND no such unit;
 * TT_ERR_STATE a parameter that another wrapper has, that is not contiguous, or that shares its memory with another
 * tensor; TT_ERR_UNSUPPORTED one that is given sparse gradients, or lies where the group's back end takes no memory;
 * those of tt_group_alloc() and of a collective.
 * Parameters may lie on a device, all on one (else TT_ERR_INVALID). Slices and places for whole units lie there, too.
 * Where the group's back end takes the device's memory, calls work in it. Otherwise as much pinned memory of the host
 * stands beside it: bytes are copied through that, next to the device's other work. If parameters lie on a device on
 * some ranks only, that is TT_ERR_MISMATCH. */
TT_API tt_module *tt_fully_shard_with(const tt_fully_shard_args *args, size_t size);
#define TT_FULLY_SHARD_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_fully_shard(module_, ...) \
    tt_fully_shard_with(TT_ARGS(tt_fully_shard_args, .module = (module_), .group = __VA_ARGS__))
#endif

/* Give the module its whole parameters, in memory of their own, on rank `root`, or TT_ALL_RANKS. Collective. Until
 * tt_fully_shard_scatter() they can be read, saved and loaded there like any module's:
 *   tt_status status = tt_fully_shard_gather(sharded, 0);
 *   status = status ? status : tt_zero_consolidate(opt, 0);
 *   if (!status && rank == 0)
 *       status = tt_checkpoint_save(path, model, opt, &progress);
 *   status = status ? status : tt_fully_shard_scatter(sharded);
 * The file is a plain model's. Meanwhile forward and step are TT_ERR_STATE, and freeing the wrapper leaves a plain
 * module. Errors: TT_ERR_INVALID no such wrapper or rank; TT_ERR_STATE they are gathered already, a backward
 * pass is under way, an earlier call failed, or another rank failed (named); TT_ERR_MEMORY; those of a collective.
 * PyTorch: get_model_state_dict(full_state_dict=True), unshard(). */
TT_API TT_NODISCARD tt_status tt_fully_shard_gather(tt_module *sharded, int root);

/* Take the slices from the current whole parameters, and free these: after tt_fully_shard_gather(root) from the root's;
 * after TT_ALL_RANKS each rank from its own, which must be alike on all. Collective. To load a state
 * dict or a checkpoint, in a world of any size: gather, load it on `root` or on all ranks, scatter. Errors:
 * TT_ERR_INVALID no such wrapper; TT_ERR_STATE nothing is gathered, a parameter was converted meanwhile, an earlier
 * call failed, or another rank failed (named); TT_ERR_MEMORY; those of a collective. */
TT_API TT_NODISCARD tt_status tt_fully_shard_scatter(tt_module *sharded);

/* The number of units of the wrapper, without the unit of the rest; 0: `sharded` is no such wrapper. Not collective. */
TT_API int64_t tt_fully_shard_unit_count(tt_module *sharded);

TT_END_DECLS
#endif
