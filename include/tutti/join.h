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
 * Who takes part is told with the gradients, so that steps cost no call more, whether ranks are missing or not. When
 * the last rank has ended, one step that nobody gives anything to tells all so. */
#ifndef TUTTI_JOIN_H
#define TUTTI_JOIN_H

#include <tutti/parallel.h>

TT_BEGIN_DECLS

typedef struct tt_join tt_join;

/* A part of a step that is not the wrapper's. */
typedef tt_status (*tt_join_step_fn)(void *user);

typedef struct tt_join_new_args {
    tt_module *ddp; /* required: a wrapper of tt_ddp(); borrowed */
    TT_OPTIONS;

    /* Gradients are averaged over the ranks that gave some, instead of over all. Neither this nor .examples goes with a
     * tt_zero_optimizer() of stage 2. PyTorch: divide_by_initial_world_size=False. */
    bool divide_by_present;

    /* Not 0: weight by examples, so that the average is that of all examples of the step. Losses are means over a
     * rank's examples; of so many, those of a full batch, unless tt_join_set_examples() says otherwise. Up to 2^20. */
    int64_t examples;

    /* The first step in which a rank has no data is an error on all ranks. PyTorch: throw_on_early_termination. */
    bool end_early;

    /* What this rank calls in tt_join_wait() before and after a step of the others: collectives that these make there,
     * and the optimizer's step, without which its state is left behind (PyTorch leaves it). `user` is borrowed. */
    tt_join_step_fn before_step, after_step;
    void *user;
    char tt_end; /* not an option: see base.h */
} tt_join_new_args;
#define TT_JOIN_NEW_ARGS_INIT TT_ARGS_INIT

/* Have the wrapper's steps tell who takes part, from the next one on. Collective, between steps. The caller frees it.
 * NULL on failure: TT_ERR_INVALID no wrapper, or a value out of range; TT_ERR_MISMATCH other options on another rank;
 * TT_ERR_STATE the wrapper has one already, or no group; TT_ERR_UNSUPPORTED beside what can't be combined with it;
 * those of a collective. One thread at a time. */
TT_API tt_join *tt_join_new_with(const tt_join_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_join_new(...) tt_join_new_with(TT_ARGS(tt_join_new_args, .ddp = __VA_ARGS__))
#endif

/* The gradients of this rank's next steps are means over so many examples (1 to 2^20). Errors: TT_ERR_INVALID;
 * TT_ERR_STATE the join weights none. */
TT_API TT_NODISCARD tt_status tt_join_set_examples(tt_join *join, int64_t examples);

/* This rank has no more data: take part in the steps of the others, without gradients, until all have ended. All ranks
 * call it, at the end of an epoch or of training; then they have the parameters and buffers of one that had data to the
 * last. Gradients that passes without averaging (tt_ddp_set_sync()) have left are given in the next step. The wrapper
 * stays in the mode (training, evaluation) that the others' forwards have. Blocks until the others are through.
 * Errors: TT_ERR_INVALID NULL; TT_ERR_STATE the wrapper was freed or has no group, or a rank has no more data, with
 * .end_early (it is named, on ranks that have data by tt_backward()); what .before_step and .after_step returned; those
 * of a collective. */
TT_API TT_NODISCARD tt_status tt_join_wait(tt_join *join);

/* How many steps of the wrapper have ended since the last tt_join_wait(), on any rank; 0 for NULL. */
TT_API int64_t tt_join_steps(const tt_join *join);

/* End it: steps tell nothing any more. All ranks do so between the same steps. Before or after the wrapper's end. NULL
 * is allowed. */
TT_API void tt_join_free(tt_join *join);

TT_END_DECLS
#endif
