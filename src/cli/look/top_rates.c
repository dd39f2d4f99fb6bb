#include "cli/look/top.h"

static const int64_t SECOND_NS = 1000000000;

/* Add the part of a slice that lies after `*until`, up to where time is counted: asynchronous calls overlap. */
static void count_busy(int64_t *busy, int64_t *until, int64_t begin, int64_t end) {
    begin = begin > *until ? begin : *until;
    if (end <= begin)
        return;
    *busy += end - begin;
    *until = end;
}

tt__top_rates tt__top_rates_of(const tt__view_rank *rank) {
    tt__top_rates rates = {0};
    int64_t from = rank->now_ns - SECOND_NS, busy = 0, device_busy = 0;
    bool full = rank->n > TT__RECORDS - 8 * TT__RECORD_BLOCK;
    if (full && rank->calls[0].begin_ns > from)
        from = rank->calls[0].begin_ns; /* what was before is overwritten */
    double window = (double)(rank->now_ns - from) / (double)SECOND_NS, calls = 0, bytes = 0;
    int64_t until = from, device_until = from;
    for (int i = 0; i < rank->n; i++) {
        const tt__view_call *call = &rank->calls[i];
        count_busy(&busy, &until, call->begin_ns, call->end_ns);
        if (call->on_device)
            count_busy(&device_busy, &device_until, call->ran_from_ns, call->ran_until_ns);
        if (call->open || call->end_ns < from)
            continue;
        calls++;
        bytes += (double)tt__record_bytes(&call->record);
    }
    if (window <= 0)
        return rates;
    rates.calls_per_s = calls / window;
    rates.bytes_per_s = bytes / window;
    rates.busy = (double)busy / (double)(rank->now_ns - from);
    rates.device_busy = (double)device_busy / (double)(rank->now_ns - from);
    return rates;
}
