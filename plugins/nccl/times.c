/* When calls ran, as the device measures it. Events before and behind a call give its duration, an anchor its
 * beginning. An anchor is an event on a stream that holds nothing else: it happens almost at once, at a time that the
 * host notes. Anchors are renewed, as clocks drift and intervals are floats.
 *
 * If anything fails here the call goes on, and its duration or beginning stays unknown. */
#include "plugin.h"

#include <time.h>

static const int64_t ANCHOR_NS = INT64_C(5000000000); /* within it a float of ms is precise to half a microsecond */

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* An event that was taken and recorded; NULL: CUDA failed. */
static nccl_event *recorded_event(nccl_engine *e, CUstream stream) {
    nccl_event *event;
    if (nccl_take_event(e, true, &event) != CUDA_SUCCESS)
        return NULL;
    if (cuda.cuEventRecord(event->event, stream) != CUDA_SUCCESS)
        nccl_give_event(e, &event);
    return event;
}

/* Record another anchor; the one before may still be in use, so there are two. */
static void renew_anchor(nccl_engine *e) {
    nccl_anchor *next = &e->anchors[!e->anchor];
    if (next->users || e->clock_stopped)
        return;
    if (!e->clock_stream && cuda.cuStreamCreate(&e->clock_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        e->clock_stream = NULL;
    nccl_give_event(e, &next->event);
    next->at_ns = clock_ns();
    next->event = e->clock_stream ? recorded_event(e, e->clock_stream) : NULL;
    e->clock_stopped = !next->event;
    e->anchor = !e->anchor;
}

static nccl_anchor *anchor_at(nccl_engine *e, int64_t now_ns) {
    const nccl_anchor *newest = &e->anchors[e->anchor];
    if (!newest->event || now_ns - newest->at_ns > ANCHOR_NS)
        renew_anchor(e);
    return &e->anchors[e->anchor];
}

void nccl_times_begin(nccl_engine *e, const nccl_lane *lane, nccl_request *r) {
    if (!r->call.times)
        return;
    r->start_ns = clock_ns();
    nccl_anchor *anchor = anchor_at(e, r->start_ns);
    r->start = recorded_event(e, lane->stream);
    if (!r->start || !anchor->event)
        return;
    r->anchor = anchor;
    anchor->users++;
}

void nccl_times_take_end(nccl_engine *e, nccl_request *r) {
    if (r->start && nccl_take_event(e, true, &r->end) != CUDA_SUCCESS)
        nccl_times_forget(e, r);
}

static bool elapsed_ns(const nccl_event *from, const nccl_event *to, int64_t *ns) {
    float ms = -1;
    if (cuda.cuEventElapsedTime(&ms, from->event, to->event) != CUDA_SUCCESS || !(ms >= 0 && ms < 1e12F))
        return false;
    *ns = (int64_t)((double)ms * 1e6);
    return true;
}

/* Keep the measured times between two of the host's: when it issued the call, and now, when it saw the end. */
void nccl_times_end(const nccl_request *r) {
    int64_t now = clock_ns(), took, since;
    if (!r->start || !elapsed_ns(r->start, r->end, &took))
        return;
    int64_t begin = now - took;
    if (r->anchor && elapsed_ns(r->anchor->event, r->start, &since) && r->anchor->at_ns + since < begin)
        begin = r->anchor->at_ns + since;
    *r->call.times = (tt_call_times){.begin_ns = begin > r->start_ns ? begin : r->start_ns, .duration_ns = took};
}

void nccl_times_forget(nccl_engine *e, nccl_request *r) {
    nccl_give_event(e, &r->start);
    if (r->anchor)
        r->anchor->users--;
    r->anchor = NULL;
}
