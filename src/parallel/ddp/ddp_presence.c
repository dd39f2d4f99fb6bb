/* Steps in which not all ranks take part, or with different numbers of examples: what a rank's gradients weigh, and
 * what all have learnt of each other when the step has ended. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "parallel/ddp/ddp_state.h"

#include <tutti/functional.h>

void tt__ddp_announce(tt__ddp *d, bool present) {
    const tt__ddp_presence *p = d->presence;
    tt__reducer_set_examples(d->reducer, !present ? 0 : p->nominal ? p->examples : 1);
}

tt_status tt__ddp_weigh(const tt__ddp_slot *s) {
    const tt__ddp_presence *p = s->owner->presence;
    if (!p || p->examples == p->nominal || !p->nominal)
        return TT_OK;
    if (!s->touched)
        TT__TRY(tt__reducer_keep(s->owner->reducer, (int64_t)s->index));
    double share = (double)p->examples / (double)p->nominal;
    return tt_scale_(tt_grad(s->parameter), share) ? TT_OK : tt_last_status();
}

/* What the averages must be multiplied with: they were divided by the number of ranks. */
static double correction(const tt__ddp_presence *p, int world, int64_t examples) {
    if (p->present == 0)
        return 1;
    if (p->nominal)
        return (double)world * (double)p->nominal / (double)examples;
    return p->divide_by_present ? (double)world / p->present : 1;
}

static tt_status correct_averages(const tt__ddp *d, double factor) {
    for (size_t i = 0; i < d->attached; i++) {
        tt_tensor *grad = tt__grad_values(d->slots[i].parameter);
        if (grad && tt_reducer_was_used(d->reducer, (int64_t)i) && !tt_scale_(grad, factor))
            return tt_last_status();
    }
    return TT_OK;
}

tt_status tt__ddp_step_ended(tt__ddp *d) {
    tt__ddp_presence *p = d->presence;
    int world = tt_get_world_size(d->group), lowest = -1, gone = -1;
    int64_t all = 0;
    p->present = 0;
    for (int rank = 0; rank < world; rank++) {
        int64_t examples = tt__reducer_examples_of(d->reducer, rank);
        all += examples;
        p->present += examples > 0;
        if (examples > 0 && lowest < 0)
            lowest = rank;
        if (examples == 0 && gone < 0)
            gone = rank;
    }
    if (lowest >= 0)
        p->root = lowest;
    double factor = correction(p, world, all);
    if (factor != 1)
        TT__TRY(correct_averages(d, factor));
    if (p->ends_early && p->present > 0 && gone >= 0)
        return tt__fail(
            TT_ERR_STATE,
            "rank %d has no more data after %lld steps, when %d of %d ranks had (.end_early of tt_join_new)", gone,
            (long long)p->steps, p->present, world);
    p->steps++;
    return TT_OK;
}
