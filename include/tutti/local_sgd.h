/* tutti/local_sgd.h: training over slow networks: ranks step on their own most of the time, and average parameters
 * instead of gradients.
 *
 * Except for tt_post_local_sgd(), the module is not wrapped by tt_ddp(): its backward passes average nothing. An
 * averager sets all ranks' parameters to rank 0's when it is made. The program tells it of each step of the optimizer,
 * which may be of any kind, and is the rank's own:
 *
 *   tt_model_averager *averager = NULL;
 *   tt_status status = tt_diloco(&averager, world, tt_module_parameters(model), 500, 0.7, 0.9);
 *   ...
 *   for each step: forward, backward,
 *       status = tt_optimizer_step(adamw);
 *       if (!status)
 *           status = tt_model_averager_step(averager);
 *
 * Threads. As in comm.h: a call that averages is a call on the group, and must not overlap others on it. One thread at
 * a time uses an averager. */
#ifndef TUTTI_LOCAL_SGD_H
#define TUTTI_LOCAL_SGD_H

#include <tutti/parallel.h>

TT_BEGIN_DECLS

typedef struct tt_model_averager tt_model_averager;

/* ---- kinds
 *
 * Each call is collective over `group`, which is borrowed (once it is destroyed the averager can only be freed). The
 * averager keeps the parameters, so it and their module may be freed in any order; the list is copied. Parameters are
 * f32, f64, f16 or bf16, on any device, and are sent together in a few large buffers. All ranks get rank 0's.
 * *out is the caller's; NULL after a failure. Errors: TT_ERR_INVALID a list that is empty, or a value out of range, by
 * name; TT_ERR_MISMATCH options or parameters that differ, on every rank, with the first that does; TT_ERR_DTYPE a
 * parameter that is no float; TT_ERR_UNSUPPORTED the back end takes no memory of the first one's device; those of a
 * collective. State (DiLoCo's anchor and momentum) lies on the host. */

typedef struct tt_periodic_model_averager_args {
    tt_model_averager **out;        /* required: receives the averager */
    tt_group *group;                /* required */
    const tt_named_tensors *params; /* required */
    int64_t period;                 /* required: steps from one averaging to the next, >= 1 */
    TT_OPTIONS;
    int64_t warmup_steps; /* steps before the first averaging */
    char tt_end;          /* not an option: see base.h */
} tt_periodic_model_averager_args;

/* Local SGD (Stich, ICLR 2019): parameters are averaged over all ranks in step number warmup_steps (counted from 0) and
 * in each `period`th step after it. PyTorch: PeriodicModelAverager, which leaves out parameters that have no gradient.
 *   tt_periodic_model_averager(&averager, world, tt_module_parameters(model), 4, .warmup_steps = 100) */
TT_API TT_NODISCARD tt_status tt_periodic_model_averager_with(const tt_periodic_model_averager_args *args, size_t size);

/* A level of a hierarchy: each group of `group_size` ranks that follow each other averages every `period` steps. */
typedef struct tt_averaging_level {
    int64_t period;
    int group_size;
} tt_averaging_level;

typedef struct tt_hierarchical_model_averager_args {
    tt_model_averager **out;          /* required: receives the averager */
    tt_group *group;                  /* required */
    const tt_named_tensors *params;   /* required */
    const tt_averaging_level *levels; /* required: periods rise; each size is a multiple of the one before, and the
                                         last is that of the group; copied */
    int64_t count;                    /* required: of levels, 1 to 16 */
    TT_OPTIONS;
    int64_t warmup_steps; /* steps before the first averaging */
    char tt_end;          /* not an option: see base.h */
} tt_hierarchical_model_averager_args;

/* Neighbours average often, all ranks seldom (Lin et al., ICLR 2020). From step number warmup_steps (counted from 0)
 * on, a step averages over the groups of the largest level whose period divides the step's number.
 * PyTorch: HierarchicalModelAverager.
 * A rank whose averaging fails aborts the groups of all its levels with its error (TT_ERR_ABORTED there), so that a
 * dead rank's name also reaches ranks that were averaging without it.
 *   tt_hierarchical_model_averager(&averager, world, tt_module_parameters(model),
 *                                  ((tt_averaging_level[]){{4, 8}, {16, 32}}), 2) */
TT_API TT_NODISCARD tt_status tt_hierarchical_model_averager_with(const tt_hierarchical_model_averager_args *args,
                                                                  size_t size);

typedef struct tt_post_local_sgd_args {
    tt_model_averager **out; /* required: receives the averager */
    tt_module *ddp;          /* required: a wrapper that tt_ddp() made; borrowed during the call */
    int64_t start;           /* required: the first step that is local, counted from 0; >= 0 */
    int64_t period;          /* required: steps from one averaging of parameters to the next, >= 1 */
    TT_OPTIONS;
    /* the ranks over which this one averages gradients from `start` on. Borrowed until wrapper and averager are freed.
     * NULL: the ranks of this one's host */
    tt_group *subgroup;
    bool no_local_averaging; /* from `start` on gradients are not averaged at all */
    char tt_end;             /* not an option: see base.h */
} tt_post_local_sgd_args;

/* Post-local SGD (Lin et al., ICLR 2020): the wrapper's backward passes average gradients over all ranks up to step
 * `start`, as counted by tt_model_averager_step(), and over the subgroup only from then on. Parameters are averaged
 * over all ranks in step number `start` and in each `period`th step after it. Sets the wrapper's communication hook,
 * which stays when the averager is freed, and goes on as in the last step. Averager and wrapper may be freed in any
 * order. Errors: also TT_ERR_INVALID no wrapper. PyTorch: post_localSGD_hook with PostLocalSGDOptimizer.
 *   tt_post_local_sgd(&averager, ddp, 100, 4) */
TT_API TT_NODISCARD tt_status tt_post_local_sgd_with(const tt_post_local_sgd_args *args, size_t size);

typedef struct tt_diloco_args {
    tt_model_averager **out;        /* required: receives the averager */
    tt_group *group;                /* required */
    const tt_named_tensors *params; /* required */
    /* required: steps of the inner optimizer for one outer step, >= 1; the paper: 500 */
    int64_t period;
    double outer_lr;       /* required: > 0; the paper: 0.7 */
    double outer_momentum; /* required: 0 to below 1; the paper: 0.9 */
    TT_OPTIONS;
    tt_dtype send_as; /* TT_F16 or TT_BF16: round the values to this type, and send half as many bytes; TT_F32: don't */
    char tt_end;      /* not an option: see base.h */
} tt_diloco_args;

/* DiLoCo (Douillard et al., 2023): after each `period` steps of the ranks' own (inner) optimizer, AdamW in the paper,
 * an outer step: SGD with Nesterov's momentum, from the point where all ranks began, on the average of the changes that
 * their steps made. Changes are computed and sent in f32, whatever the type of a parameter; for f64 in f64.
 *   tt_diloco(&averager, world, tt_module_parameters(model), 500, 0.7, 0.9) */
TT_API TT_NODISCARD tt_status tt_diloco_with(const tt_diloco_args *args, size_t size);

/* ---- use ---- */

/* Call it after each step of the optimizer, on all ranks: it counts the step, and averages if that is due. If it
 * averages, it is collective and blocks. Errors: TT_ERR_INVALID NULL; TT_ERR_STATE a parameter that has another type or
 * shape than when the averager was made, or an averaging that failed before; those of a collective, after which some
 * parameters may be averaged and others not. If one rank alone fails, or hears of a failure in one of its groups
 * (levels, subgroups), it aborts the averager's groups: the others get TT_ERR_ABORTED with its error, at once or in
 * their next call on such a group. PyTorch: ModelAverager.average_parameters(), PostLocalSGDOptimizer.step(). */
TT_API TT_NODISCARD tt_status tt_model_averager_step(tt_model_averager *averager);

/* Average over all ranks now (DiLoCo: an outer step), and count nothing: at the end of training, or before an
 * evaluation. Collective. Errors: as above. */
TT_API TT_NODISCARD tt_status tt_model_averager_average(tt_model_averager *averager);

/* Will the next tt_model_averager_step() average? False for NULL. */
TT_API bool tt_model_averager_is_due(const tt_model_averager *averager);

/* The number of steps that it has counted; 0 for NULL. */
TT_API int64_t tt_model_averager_steps(const tt_model_averager *averager);

/* State as named tensors: "step" (i64, a scalar), and of tt_diloco() "anchor.NAME" and "momentum_buffer.NAME" for each
 * parameter: the same on all ranks. Between averagings parameters and inner optimizers are each rank's own. Borrowed
 * until the next step or the next call of this function. NULL, recorded: `averager` is NULL, or no memory. */
TT_API const tt_named_tensors *tt_model_averager_state_dict(tt_model_averager *averager);

/* Load a state, the same on all ranks. Not collective. Errors, by name: TT_ERR_INVALID NULL, another number of entries;
 * TT_ERR_NOT_FOUND a missing one; TT_ERR_SHAPE, TT_ERR_DTYPE. After an error nothing is changed. */
TT_API TT_NODISCARD tt_status tt_model_averager_load_state_dict(tt_model_averager *averager,
                                                                const tt_named_tensors *state);

/* Collective (it frees symmetric memory), but never fails: after an error of the group only local memory is released.
 * NULL is allowed. */
TT_API void tt_model_averager_free(tt_model_averager *averager);

#define TT_PERIODIC_MODEL_AVERAGER_ARGS_INIT TT_ARGS_INIT
#define TT_HIERARCHICAL_MODEL_AVERAGER_ARGS_INIT TT_ARGS_INIT
#define TT_POST_LOCAL_SGD_ARGS_INIT TT_ARGS_INIT
#define TT_DILOCO_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_post_local_sgd(out_, ddp_, start_, ...)                                                                    \
    tt_post_local_sgd_with(TT_ARGS(tt_post_local_sgd_args, .out = TT_PLACE(tt_model_averager *, out_), .ddp = (ddp_), \
                                   .start = (start_), .period = __VA_ARGS__))
#define tt_periodic_model_averager(out_, group_, params_, ...)                                             \
    tt_periodic_model_averager_with(TT_ARGS(tt_periodic_model_averager_args,                               \
                                            .out = TT_PLACE(tt_model_averager *, out_), .group = (group_), \
                                            .params = (params_), .period = __VA_ARGS__))
#define tt_hierarchical_model_averager(out_, group_, params_, levels_, ...)                                    \
    tt_hierarchical_model_averager_with(TT_ARGS(tt_hierarchical_model_averager_args,                           \
                                                .out = TT_PLACE(tt_model_averager *, out_), .group = (group_), \
                                                .params = (params_), .levels = (levels_), .count = __VA_ARGS__))
#define tt_diloco(out_, group_, params_, period_, outer_lr_, ...)                                         \
    tt_diloco_with(TT_ARGS(tt_diloco_args, .out = TT_PLACE(tt_model_averager *, out_), .group = (group_), \
                           .params = (params_), .period = (period_), .outer_lr = (outer_lr_),             \
                           .outer_momentum = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
