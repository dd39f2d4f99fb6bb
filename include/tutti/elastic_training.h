/* tutti/elastic_training.h: what a training program registers with tutti/elastic.h: modules, optimizers, loaders.
 *
 * Objects are borrowed: they live as long as tt_elastic_commit() and tt_elastic_restore() are called, and may be freed
 * before or after tt_elastic_free(). Names, and errors of all functions: as tt_elastic_add(); TT_ERR_INVALID an object
 * that is NULL. One thread at a time. */
#ifndef TUTTI_ELASTIC_TRAINING_H
#define TUTTI_ELASTIC_TRAINING_H

#include <tutti/amp.h>
#include <tutti/elastic.h>
#include <tutti/loader.h>
#include <tutti/optim.h>
#include <tutti/parallel.h>

TT_BEGIN_DECLS

typedef struct tt_elastic_ddp_args {
    tt_elastic *elastic; /* required */
    const char *name;    /* required: copied */
    tt_module *module;   /* required: kept until the wrapper is freed */
    TT_OPTIONS;
    size_t bucket_cap_bytes;   /* as tt_ddp() has it */
    bool no_broadcast_buffers; /* as tt_ddp() has it */
    int virtual_ranks;         /* as tt_ddp() has it: the same bits for any number of ranks up to this */
    uint64_t shard_seed;       /* as tt_ddp() has it */
    bool sync_batch_norm;      /* in each round, make all batch norms SyncBatchNorms of that round's group */
    char tt_end;               /* not an option: see base.h */
} tt_elastic_ddp_args;

/* Register a module, and wrap it for training on all ranks of each round's group: as tt_ddp(), but without waiting for
 * other ranks here. Each tt_elastic_restore() binds the wrapper to the round's group and sets parameters and buffers;
 * gradients are none then. The wrapper stays the same object, which the caller frees by tt_module_free(). A recorded
 * forward in training before the first restore is TT_ERR_STATE.
 *   tt_module *ddp = tt_elastic_ddp(e, "model", model)
 * After a step, buffers that change in training (batch norm's) are those of the rank's own batches; the next forward
 * takes rank 0's. If rank 0 is lost, or another rank had come further, another rank's buffers are taken, and parameters
 * then differ in bits from those of a run without the loss. With .virtual_ranks they don't, as all ranks have shard 0's
 * buffers after each step.
 * tt_elastic_restore() gives the module's SyncBatchNorms the round's group. With .sync_batch_norm it also makes all
 * other batch norms SyncBatchNorms. (A rank that joins later could not do so itself, as tt_convert_sync_batchnorm() is
 * collective.) Not with .virtual_ranks (TT_ERR_INVALID). NULL on failure. */
TT_API tt_module *tt_elastic_ddp_with(const tt_elastic_ddp_args *args, size_t size);
#ifndef __cplusplus
#define tt_elastic_ddp(elastic_, name_, ...) \
    tt_elastic_ddp_with(TT_ARGS(tt_elastic_ddp_args, .elastic = (elastic_), .name = (name_), .module = __VA_ARGS__))
#endif
#define TT_ELASTIC_DDP_ARGS_INIT TT_ARGS_INIT

/* Register the parameters and buffers of a module that is not averaged; tt_elastic_ddp() wraps one that is. */
TT_API TT_NODISCARD tt_status tt_elastic_add_module(tt_elastic *elastic, const char *name, tt_module *module);

/* Register an optimizer: its state and the options of its groups. Call it after registering its parameters' module. */
TT_API TT_NODISCARD tt_status tt_elastic_add_optimizer(tt_elastic *elastic, const char *name, tt_optimizer *optimizer);

/* Register a scheduler, a gradient scaler, averages of parameters. */
TT_API TT_NODISCARD tt_status tt_elastic_add_lr_scheduler(tt_elastic *elastic, const char *name,
                                                          tt_lr_scheduler *scheduler);
TT_API TT_NODISCARD tt_status tt_elastic_add_grad_scaler(tt_elastic *elastic, const char *name, tt_grad_scaler *scaler);
TT_API TT_NODISCARD tt_status tt_elastic_add_ema(tt_elastic *elastic, const char *name, tt_ema *ema);

/* Register a generator from which all ranks draw the same; NULL: the thread's default one. For what each rank draws for
 * itself there is tt_elastic_step_seed(), which needs no state. */
TT_API TT_NODISCARD tt_status tt_elastic_add_generator(tt_elastic *elastic, const char *name, tt_generator *generator);

/* Register a loader: its position in the epoch, counted over all ranks. Its sampler is one of tt_distributed_sampler(),
 * made for the rank and world size of tt_elastic_group() at that time; each tt_elastic_restore() gives it those of the
 * new round. On as many ranks as before, each rank reads what it would have read. On another number of ranks, the rest
 * of the epoch is divided again, as tt_loader_load_state_dict() does. All ranks must commit at the same place; a loop
 * over the epoch just begins again: tt_sampler_set_epoch() with the same epoch, and
 * tt_loader_next() until its end. A loader for evaluation is registered, too, as its sampler depends on the ranks.
 * Errors: also TT_ERR_UNSUPPORTED another sampler, whose order on a lost rank is unknown. */
TT_API TT_NODISCARD tt_status tt_elastic_add_loader(tt_elastic *elastic, const char *name, tt_loader *loader);

TT_END_DECLS
#endif
