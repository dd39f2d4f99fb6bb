#include "cli/bench/bench_link.h"

#include "base/clock.h"
#include "base/error.h"
#include "cli/bench/bench.h"

#include <stdlib.h>
#include <string.h>

struct tt__bench_link {
    tt_reducer *reducer;
    double ns_per_byte;           /* that the link takes for a byte of a bucket */
    int64_t buckets, steps, room; /* steps timed, and for how many there is room */
    int64_t begin_ns;
    int64_t *ready_ns;         /* (buckets): since the step began, when the last gradient of each was ready */
    double *least_ms, *ratios; /* (room) */
};

static void note_ready(const tt_reducer_event *event, void *user) {
    tt__bench_link *link = user;
    if (event->kind == TT_REDUCER_READY)
        link->ready_ns[tt_reducer_bucket_of(link->reducer, event->index)] = event->time_ns - link->begin_ns;
}

/* In an all-reduce over W ranks each sends 2 (W - 1) / W times the bytes, and receives as many meanwhile. 8e3 / mbit:
 * ns a byte takes at so many Mbit/s. */
tt_status tt__bench_link_new(tt__bench_link **out, tt_module *ddp, tt_group *group, int64_t mbit, int64_t steps) {
    tt__bench_link *link = calloc(1, sizeof *link);
    double world = tt_get_world_size(group);
    *out = link;
    if (!link)
        return tt__fail(TT_ERR_MEMORY, "no memory to time steps");
    link->reducer = tt_ddp_reducer(ddp);
    link->buckets = tt_reducer_bucket_count(link->reducer);
    link->ns_per_byte = 2 * (world - 1) / world * 8e3 / (double)mbit;
    link->room = steps;
    link->ready_ns = calloc((size_t)link->buckets, sizeof *link->ready_ns);
    link->least_ms = calloc((size_t)steps, sizeof *link->least_ms);
    link->ratios = calloc((size_t)steps, sizeof *link->ratios);
    if (!link->ready_ns || !link->least_ms || !link->ratios)
        return tt__fail(TT_ERR_MEMORY, "no memory to time %lld steps", (long long)steps);
    tt_reducer_set_trace(link->reducer, note_ready, link);
    return TT_OK;
}

void tt__bench_link_free(tt__bench_link *link) {
    if (!link)
        return;
    tt_reducer_set_trace(link->reducer, NULL, NULL);
    free(link->ready_ns);
    free(link->least_ms);
    free(link->ratios);
    free(link);
}

void tt__bench_link_begin(tt__bench_link *link) {
    if (!link)
        return;
    memset(link->ready_ns, 0, (size_t)link->buckets * sizeof *link->ready_ns);
    link->begin_ns = tt__now_ns();
}

void tt__bench_link_end(tt__bench_link *link) {
    double took = 0, left = 0, least = 0;
    if (!link || link->steps == link->room)
        return;
    took = (double)(tt__now_ns() - link->begin_ns);
    for (int64_t b = link->buckets - 1; b >= 0; b--) {
        left += (double)tt_reducer_bucket_bytes(link->reducer, b) * link->ns_per_byte;
        if ((double)link->ready_ns[b] + left > least)
            least = (double)link->ready_ns[b] + left;
    }
    link->least_ms[link->steps] = least * 1e-6;
    link->ratios[link->steps++] = took / least;
}

void tt__bench_link_medians(tt__bench_link *link, double *least_ms, double *ratio) {
    size_t n = (size_t)link->steps;
    tt__bench_sort(link->least_ms, n);
    tt__bench_sort(link->ratios, n);
    *least_ms = link->least_ms[n / 2];
    *ratio = link->ratios[n / 2];
}
