/* What the programs share that leave their loop to tt_trainer_run(). */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include <tutti/tutti.h>

/* Give the seed of shuffling: that of the checkpoint that is resumed, if there is one, else the flag's. */
static inline tt_status shuffling_seed(uint64_t *seed, int64_t flag, const char *resume) {
    tt_progress progress = TT_PROGRESS(.sampler_seed = (uint64_t)flag);
    if (resume && tt_checkpoint_progress(resume, &progress))
        return tt_last_status();
    *seed = progress.sampler_seed;
    return TT_OK;
}

/* How many of a batch's examples are recognised, as the metric "accuracy". y (B,10) logits or log-probabilities, labels
 * (B) */
static inline tt_status count_correct(tt_trainer *t, tt_tensor *y, const tt_batch *b) {
    const int64_t *guess = tt_tensor_i64(tt_to_device(tt_argmax(y, 1), TT_CPU)), *label = tt_tensor_i64(b->y);
    if (!guess || !label)
        return tt_last_status();
    int64_t correct = 0;
    for (int64_t i = 0; i < b->size; i++)
        correct += guess[i] == label[i];
    return tt_trainer_add_metric(t, "accuracy", (double)correct / (double)b->size, b->size);
}

#endif
