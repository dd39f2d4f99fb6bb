/* The log line of a wait that takes long. */
#include "base/error.h"
#include "base/setting.h"
#include "comm/record/recorder.h"

#include <stdio.h>

void tt__recorder_log_wait(const tt__recorder *recorder) {
    static _Atomic uint64_t logged; /* when the latest of the waits that were logged had begun */
    tt__waiting waiting;
    tt__call_record record;
    char call[256] = "a call", whom[32] = "any rank";
    if (!tt__wait_notice_ns() || !tt__log_wanted(TT_LOG_INFO) || !tt__recorder_waiting(recorder, &waiting) ||
        atomic_load_explicit(&logged, memory_order_relaxed) >= waiting.since)
        return;
    tt__moment now = tt__moment_now();
    tt__ticks_line line = tt__ticks_line_through(&recorder->begin, &now);
    int64_t ns = now.monotonic_ns - tt__ticks_ns(&line, waiting.since);
    if (ns < tt__wait_notice_ns())
        return;
    atomic_store_explicit(&logged, waiting.since, memory_order_relaxed);
    if (waiting.whom >= 0)
        snprintf(whom, sizeof whom, "rank %d", (int)waiting.whom);
    if (tt__record_read(recorder, waiting.record, &record))
        tt__record_text(recorder, &record, call, sizeof call);
    tt__log(TT_LOG_INFO, "waiting for %s: %.3g s in %s", whom, (double)ns / 1e9, call);
}
