/* 1F1B with several stages a rank (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
 * Using Megatron-LM", 2021). A rank takes its chunks in turns of R micro-batches. Idle: (R - 1) (F + B) / chunks, for
 * chunks times the transfers. The number of micro-batches is a multiple of R. */
#include "parallel/pipeline/pipeline_schedule.h"

tt__act tt__turn(const tt__schedule *sizes, int64_t k, bool backward) {
    int64_t turn = sizes->ranks * sizes->chunks, first = k / turn * sizes->ranks, in_turn = k % turn;
    int64_t width = sizes->micros - first < sizes->ranks ? sizes->micros - first : sizes->ranks;
    int64_t chunk = in_turn / width;
    return (tt__act){.kind = backward ? TT__BACKWARD : TT__FORWARD,
                     .chunk = backward ? sizes->chunks - 1 - chunk : chunk,
                     .micro = first + in_turn % width};
}

int64_t tt__list_interleaved(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t total = sizes->micros * sizes->chunks, n = 0, forward = 0, backward = 0;
    int64_t ahead = (sizes->ranks - 1 - rank) * 2 + (sizes->chunks - 1) * sizes->ranks;
    while (forward < ahead && forward < total)
        acts[n++] = tt__turn(sizes, forward++, false);
    while (forward < total) {
        acts[n++] = tt__turn(sizes, forward++, false);
        acts[n++] = tt__turn(sizes, backward++, true);
    }
    while (backward < total)
        acts[n++] = tt__turn(sizes, backward++, true);
    return n;
}
