/* tutti/sync_batch_norm.h: batch normalisation over the batches of all ranks.
 *
 * A BatchNorm normalises each rank's batch by that batch's mean and variance, which are noisy for small batches. A
 * SyncBatchNorm uses those of all ranks' batches together, as one process on the whole batch would. It costs two
 * collectives for each layer and step, whose size depends on the number of channels only: in forward ranks gather mean,
 * variance and count, in backward they add up two sums for each channel.
 *
 * In training mode forward and backward are therefore collective: all ranks run the same layers in the same order, and
 * as many backward passes. Batches may differ in size, and a rank's may be empty; if all are, results are empty, the
 * running statistics stay as they are, and gradients of weight and bias are 0, as of tt_batch_norm(). In evaluation
 * mode the running statistics are used, and nothing is sent. Gradients of weight and bias are the rank's own: tt_ddp()
 * averages them.
 *
 * The layers have a group of their own, made of `group`. Their collectives and the averages of tt_ddp() run at the
 * same time, and so need no common order. That group ends when the last of the layers is freed. Threads: as the
 * collectives of one group, which must not overlap. */
#ifndef TUTTI_SYNC_BATCH_NORM_H
#define TUTTI_SYNC_BATCH_NORM_H

#include <tutti/comm.h>
#include <tutti/nn.h>

TT_BEGIN_DECLS

typedef struct tt_nn_sync_batch_norm_args {
    tt_group *group;      /* required: borrowed for the call */
    int64_t num_features; /* required */
    TT_OPTIONS;
    double momentum, eps;  /* 0, the default: 0.1 and 1e-5 */
    bool no_affine;        /* no weight and bias */
    bool no_running_stats; /* use each batch's statistics in evaluation, too (this rank's only) */
    tt_dtype dtype;        /* TT_F32, the default, or TT_F64 */
    char tt_end;           /* not an option: see base.h */
} tt_nn_sync_batch_norm_args;

/* torch.nn.SyncBatchNorm of (N,C) or (N,C,...), with the parameters and buffers of tt_nn_batch_norm2d(). Collective:
 * all ranks make the same layers in the same order.
 *   tt_nn_sync_batch_norm(world, 64)
 * NULL on failure: TT_ERR_MISMATCH names what differs, and the rank, also one that refuses the call; TT_ERR_INVALID as
 * tt_nn_batch_norm2d(), or no group; and those of a collective.
 * Errors of the forward in training mode, beside those of tt_batch_norm() and of collectives: TT_ERR_INVALID one
 * element a channel over all ranks (on all ranks); TT_ERR_PEER names a rank that could not find its batch's mean.
 * If one rank alone refuses its x, or has no memory for it, the others get TT_ERR_PEER, which names it, and the layers
 * stay usable. If it fails later, or in backward, they get TT_ERR_ABORTED in the layers' next call, with its error. */
TT_API tt_module *tt_nn_sync_batch_norm_with(const tt_nn_sync_batch_norm_args *args, size_t size);

/* Make every BatchNorm1d and BatchNorm2d of a tree, also its root, a SyncBatchNorm; existing SyncBatchNorms get a new
 * group. All of them stay the same modules in the same places, with the same parameters, buffers, names and hooks, so
 * optimizers and other references stay valid. Collective: before tt_ddp(), or after it. Returns `module`.
 *   model = tt_convert_sync_batchnorm(tt_model_resnet18(10), world);
 * In an elastic job tt_elastic_ddp(.sync_batch_norm) does it, in each round.
 * NULL on failure, and nothing has changed; the module stays the caller's: TT_ERR_MISMATCH names the first of these
 * layers that differs between ranks; TT_ERR_INVALID no group; and those of a collective. NULL as the module gives NULL.
 * PyTorch: torch.nn.SyncBatchNorm.convert_sync_batchnorm. */
TT_API tt_module *tt_convert_sync_batchnorm(tt_module *module, tt_group *group);

#define TT_NN_SYNC_BATCH_NORM_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_nn_sync_batch_norm(group_, ...) \
    tt_nn_sync_batch_norm_with(TT_ARGS(tt_nn_sync_batch_norm_args, .group = (group_), .num_features = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
