/* What a wrapper knows of its steps, for programs and for those who watch the job. */
#include "base/machine/clock.h"
#include "comm/record/recorder.h"
#include "parallel/ddp/ddp_state.h"

/* How many steps a mean is taken over: single ones jump about. */
enum { SMOOTHED_STEPS = 16 };

static int64_t count_unused(const tt__ddp *d) {
    int64_t unused = 0;
    for (size_t i = 0; i < d->attached; i++)
        unused += !tt_reducer_was_used(d->reducer, (int64_t)i);
    return unused;
}

static int64_t gradient_bytes(const tt__ddp *d) {
    int64_t bytes = 0;
    for (int64_t b = 0; b < tt_reducer_bucket_count(d->reducer); b++)
        bytes += tt_reducer_bucket_bytes(d->reducer, b);
    return bytes;
}

static void smooth(int64_t *mean, int64_t now, int64_t steps) {
    *mean += (now - *mean) / (steps < SMOOTHED_STEPS ? steps : SMOOTHED_STEPS);
}

static void publish_step(tt__ddp *d) {
    const tt_ddp_logging_data *log = &d->log;
    int64_t *mean = d->mean_ns;
    smooth(&mean[0], log->forward_ns, log->steps);
    smooth(&mean[1], log->backward_ns, log->steps);
    smooth(&mean[2], log->averaging_ns, log->steps);
    smooth(&mean[3], log->overlap_ns, log->steps);
    tt__averaging shown = {.steps = log->steps,
                           .bytes = log->gradient_bytes,
                           .buckets = log->buckets,
                           .forward_ns = mean[0],
                           .backward_ns = mean[1],
                           .averaging_ns = mean[2],
                           .overlap_ns = mean[3]};
    tt__publish_averaging(&shown);
}

void tt__ddp_log_step(tt__ddp *d, int64_t ready_ns) {
    tt_ddp_logging_data *log = &d->log;
    int64_t begun_ns = d->reducer->first_begun_ns;
    log->steps++;
    log->forward_ns = d->forward_ns;
    log->backward_ns = ready_ns - d->first_ns;
    log->averaging_ns = tt__now_ns() - begun_ns;
    log->overlap_ns = ready_ns > begun_ns ? ready_ns - begun_ns : 0;
    log->unused = count_unused(d);
    log->parameters = (int64_t)d->attached;
    log->buckets = tt_reducer_bucket_count(d->reducer);
    log->gradient_bytes = gradient_bytes(d);
    d->forward_ns = 0;
    publish_step(d);
}
