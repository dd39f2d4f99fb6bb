/* All forwards, then all backwards (Huang et al., "GPipe", 2019). Idle: (R - 1) (F + B) of a step; a rank holds the
 * activations of all micro-batches. */
#include "parallel/pipeline/pipeline_schedule.h"

int64_t tt__list_gpipe(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t n = 0;
    (void)rank;
    for (int64_t m = 0; m < sizes->micros; m++)
        acts[n++] = (tt__act){TT__FORWARD, 0, m};
    for (int64_t m = 0; m < sizes->micros; m++)
        acts[n++] = (tt__act){TT__BACKWARD, 0, m};
    return n;
}

/* Evaluation: the first half, chunk by chunk in turns. */
int64_t tt__list_forward(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t n = sizes->micros * sizes->chunks;
    (void)rank;
    for (int64_t k = 0; k < n; k++)
        acts[k] = tt__turn(sizes, k, false);
    return n;
}
