/* Backward in two halves (Qi et al., "Zero Bubble Pipeline Parallelism", 2023: ZB-H1). The half that the stage before
 * waits for runs at once; the weights' half fills what would be idle. Rank r keeps r of those back, so that it holds no
 * more than rank 0 does in 1F1B: R micro-batches. Idle: (R - 1) (F + I - W). With several chunks a rank it is the
 * interleaved schedule, its backwards halved in the same way. The first stage sends no gradient, so its backward is
 * whole. */
#include "parallel/pipeline/pipeline_schedule.h"

/* Of a rank's backwards, in their order, those whose weights' halves are still to be run. */
typedef struct kept_back {
    int64_t next, end;
} kept_back;

static tt__act nth_backward(const tt__schedule *sizes, int64_t k) {
    if (sizes->chunks > 1)
        return tt__turn(sizes, k, true);
    return (tt__act){TT__BACKWARD, 0, k};
}

/* Add the weights' halves that are due, down to `keep` of them. */
static int64_t add_due(tt__act *acts, const tt__schedule *sizes, int64_t rank, kept_back *back, int64_t keep) {
    int64_t n = 0;
    while (back->end - back->next > keep) {
        tt__act act = nth_backward(sizes, back->next++);
        act.kind = TT__WEIGHT_GRADS;
        if (rank || act.chunk)
            acts[n++] = act;
    }
    return n;
}

int64_t tt__list_zero_bubble(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t each = sizes->micros * sizes->chunks, n = 0;
    tt__act *whole = acts + each; /* at the end of the room, where it is read before it is overwritten */
    int64_t count = sizes->chunks > 1 ? tt__list_interleaved(whole, sizes, rank) : tt__list_1f1b(whole, sizes, rank);
    kept_back back = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        tt__act act = whole[i];
        bool halved = act.kind == TT__BACKWARD && (rank || act.chunk);
        if (halved)
            act.kind = TT__INPUT_GRADS;
        bool is_backward = act.kind != TT__FORWARD;
        acts[n++] = act;
        back.end += is_backward;
        n += is_backward ? add_due(acts + n, sizes, rank, &back, rank) : 0;
    }
    return n + add_due(acts + n, sizes, rank, &back, 0);
}
