#include "net/refusals.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/format.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINES = 10, WINDOW_MS = 10000 };

void tt__refusals_flush_now(tt__refusals *refusals, const char *who) {
    if (refusals->suppressed)
        tt__log(TT_LOG_WARNING, "%s: refused %d more connections within %d s", who, refusals->suppressed,
                WINDOW_MS / 1000);
    refusals->lines = refusals->suppressed = 0;
}

void tt__refusals_flush(tt__refusals *refusals, const char *who) {
    int64_t now_ms = tt__now_ms();
    if (refusals->window_ms && now_ms - refusals->window_ms < WINDOW_MS)
        return;
    tt__refusals_flush_now(refusals, who);
    refusals->window_ms = now_ms;
}

void tt__refusals_log(tt__refusals *refusals, const char *who, const char *format, ...) {
    char text[512];
    va_list args;
    tt__refusals_flush(refusals, who);
    if (refusals->lines++ >= LINES) {
        refusals->suppressed++;
        return;
    }
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    tt__log(TT_LOG_WARNING, "%s: %s", who, text);
}

int64_t tt__refusals_next_ms(const tt__refusals *refusals) {
    return refusals->suppressed ? refusals->window_ms + WINDOW_MS : -1;
}
