/* tutti/join.h: data-parallel training on ranks that have different numbers of batches. PyTorch:
 * torch.distributed.algorithms.Join, DistributedDataParallel.join.
 *
 *   tt_join *join = tt_join_new(ddp, .after_step = update);
 *   for (int epoch = 0; epoch < 5; epoch++) {
 *       while (tt_loader_next(loader, &batch))
 *           ... forward, tt_backward(), update(...)
 *       if (tt_join_wait(join))                  // take part in the others' steps until all have ended
 *           goto out;
 *   }
 *   tt_join_free(join);
 *
 * Ranks tell with the gradients whether they take part, so steps make no additional call. When the last rank has ended,
 * one step without any gradients tells all ranks. */
#ifndef TUTTI_JOIN_H
#define TUTTI_JOIN_H

#include <tutti/parallel.h>

TT_BEGIN_DECLS

typedef struct tt_join tt_join;

/* A part of a step outside of the wrapper. */
typedef tt_status (*tt_join_step_fn)(void *user);

typedef struct tt_join_new_args {
    tt_module *ddp; /* required: a wrapper of tt_ddp(); borrowed */
    TT_OPTIONS;

    /* Average gradients over the ranks that gave some, instead of over all. Neither this nor .examples goes with a
     * tt_zero_optimizer() of stage 2. PyTorch: divide_by_initial_world_size=False. */
    bool divide_by_present;

    /* Not 0: weight gradients by examples, so that the average is over all examples of the step. A rank's loss is a
     * mean over so many examples (a full batch), unless tt_join_set_examples() says otherwise. Up to 2^20. */
    int64_t examples;

    /* The first step in which a rank has no data is an error on all ranks. PyTorch: throw_on_early_termination. */
    bool end_early;

    /* Called in tt_join_wait() before and after each step of the others, to make the collectives that the others make
     * there, and the optimizer's step, without which this rank's state falls behind (as in PyTorch). `user` is
     * borrowed. */
    tt_join_step_fn before_step, after_step;
    void *user;
    char tt_end; /* not an option: see base.h */
} tt_join_new_args;
#define TT_JOIN_NEW_ARGS_INIT TT_ARGS_INIT

/* Have the wrapper's steps tell who takes part, from the next one on. Collective, between steps. The caller frees it.
 * NULL on failure: TT_ERR_INVALID no wrapper, or a value out of range; TT_ERR_MISMATCH other options on another rank;
 * TT_ERR_STATE the wrapper has one already, or no group; TT_ERR_UNSUPPORTED an option that can't be combined with
 * the wrapper; those of a collective. One thread at a time. */
TT_API tt_join *tt_join_new_with(const tt_join_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_join_new(...) tt_join_new_with(TT_ARGS(tt_join_new_args, .ddp = __VA_ARGS__))
#endif

/* Say that the gradients of this rank's next steps are means over so many examples (1 to 2^20). Errors: TT_ERR_INVALID;
 * TT_ERR_STATE the join has no .examples. */
TT_API TT_NODISCARD tt_status tt_join_set_examples(tt_join *join, int64_t examples);

/* This rank has no more data: take part in the steps of the others, without gradients, until all have ended. All ranks
 * call it, at the end of an epoch or of training; then they have the parameters and buffers of a rank that had data to
 * the end. Gradients that passes without averaging (tt_ddp_set_sync()) have left are given in the next step. The
 * wrapper must be in the mode (training, evaluation) of the others' forwards. Blocks until the others have ended.
 * Errors: TT_ERR_INVALID NULL; TT_ERR_STATE the wrapper was freed or has no group, or a rank has no more data, with
 * .end_early (it is named, on ranks that have data by tt_backward()); the errors of .before_step and .after_step; those
 * of a collective. */
TT_API TT_NODISCARD tt_status tt_join_wait(tt_join *join);

/* How many steps of the wrapper have ended since the last tt_join_wait(), on any rank; 0 for NULL. */
TT_API int64_t tt_join_steps(const tt_join *join);

/* Free it: steps tell nothing any more. All ranks do so between the same steps, before or after the wrapper is freed.
 * NULL is allowed. */
TT_API void tt_join_free(tt_join *join);

TT_END_DECLS
#endif
