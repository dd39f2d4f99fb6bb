#include "autograd/anomaly.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/core/tensor.h"

#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 24, TOLD = 3 /* frames */ };

struct tt__call_site {
    int count;
    void *at[DEPTH];
};

static _Atomic bool detects;

void tt_set_detect_anomaly(bool on) { atomic_store_explicit(&detects, on, memory_order_relaxed); }

bool tt_is_anomaly_enabled(void) { return atomic_load_explicit(&detects, memory_order_relaxed); }

tt__call_site *tt__anomaly_note(void) {
    tt__call_site *site = tt_is_anomaly_enabled() ? tt__pool_alloc(sizeof *site) : NULL;
    if (site)
        site->count = backtrace(site->at, DEPTH);
    return site;
}

/* Is the frame the library's own? Linked statically it can be told by names alone. */
static bool is_ours(const char *frame) { return strstr(frame, "libtutti") || strstr(frame, "(tt_"); }

/* "./train(main+0x1a2), ..." */
static const char *site_text(const tt__call_site *site, char *text, size_t size) {
    char **frames = site ? backtrace_symbols(site->at, site->count) : NULL;
    size_t n = 0;
    int told = 0;
    snprintf(text, size, "an unknown place");
    for (int i = 0; frames && i < site->count && told < TOLD && n < size; i++) {
        int length = (int)strcspn(frames[i], "[");
        while (length > 0 && frames[i][length - 1] == ' ')
            length--;
        if (!is_ours(frames[i]))
            n += (size_t)snprintf(text + n, size - n, "%s%.*s", told++ ? ", " : "", length, frames[i]);
    }
    free(frames);
    return text;
}

tt_status tt__anomaly_fail(const char *op, uint64_t number, const tt__call_site *site, int i, const tt_tensor *x,
                           int64_t at, bool came_with_one) {
    char where[600];
    return tt__fail(TT_ERR_NAN,
                    "tt_backward: %s gave its input %d a gradient, %s, whose element %" PRId64 " is not a number%s; "
                    "the call, the %" PRIu64 "th that was recorded, was made from %s",
                    op, i, TT__DESCRIBE(x), at,
                    came_with_one ? " (the gradient of its result had such elements already)" : "", number,
                    site_text(site, where, sizeof where));
}
