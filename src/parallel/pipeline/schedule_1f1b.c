/* One forward, one backward (Narayanan et al., "PipeDream-Flush" in "Memory-Efficient Pipeline-Parallel DNN Training",
 * 2021). Rank r begins with R - 1 - r forwards; then each forward is followed by the backward of the oldest. Idle as
 * GPipe's, (R - 1) (F + B), but a rank holds the activations of at most R - r micro-batches. */
#include "parallel/pipeline/pipeline_schedule.h"

int64_t tt__list_1f1b(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t ahead = sizes->ranks - 1 - rank, n = 0, forward = 0, backward = 0;
    while (forward < ahead && forward < sizes->micros)
        acts[n++] = (tt__act){TT__FORWARD, 0, forward++};
    while (forward < sizes->micros) {
        acts[n++] = (tt__act){TT__FORWARD, 0, forward++};
        acts[n++] = (tt__act){TT__BACKWARD, 0, backward++};
    }
    while (backward < sizes->micros)
        acts[n++] = (tt__act){TT__BACKWARD, 0, backward++};
    return n;
}
