/* monitored_barrier, of messages: everybody tells rank 0 that it is here; rank 0 tells everybody how it went. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/backend/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HERE = -1, ALL_HERE = -2 /* tags of Tutti's own */ };

static tt_status post(tt_group *group, const tt_call *call, bool is_recv, int peer, int tag, tt_work **work) {
    uint8_t *byte = &tt__plugin_of(group)->bytes[peer]; /* not on the stack: what is given up may still be written to */
    tt_call message = {.op = is_recv ? TT_OP_RECV : TT_OP_SEND,
                       .dtype = TT_U8,
                       .count = 1,
                       .root = peer,
                       .tag = tag,
                       .send = byte,
                       .recv = byte,
                       .timeout_ms = call->timeout_ms,
                       .file = call->file,
                       .line = call->line};
    return tt__plugin_submit(group, &message, work);
}

/* Those who have not come, "1, 3". */
static bool list_missing(const tt_group *group, tt_work *const *works, char *text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    for (int r = 1; r < group->size; r++)
        if (!works[r] || !atomic_load(&works[r]->done))
            n += n < size ? (size_t)snprintf(text + n, size - n, "%s%d", n ? ", " : "", r) : 0;
    return n > 0;
}

static tt_status await_all(tt_group *group, const tt_call *call, tt_work **works) {
    int64_t deadline_ms = tt__deadline_ms(call->timeout_ms);
    char missing[256];
    for (int r = 1; r < group->size; r++)
        TT__TRY(post(group, call, true, r, HERE, &works[r]));
    while (list_missing(group, works, missing, sizeof missing)) {
        if (tt__now_ms() >= deadline_ms) {
            tt__fail(TT_ERR_TIMEOUT, "monitored_barrier: of %d ranks, these did not come within %lld ms: %s",
                     group->size, (long long)call->timeout_ms, missing);
            return tt__plugin_fail(group);
        }
        TT__TRY(tt__plugin_progress(group));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return TT_OK;
}

static tt_status as_root(tt_group *group, const tt_call *call) {
    tt_work **works = calloc((size_t)group->size, sizeof *works);
    tt_status status = works ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for %d messages", group->size);
    if (!status)
        status = await_all(group, call, works);
    for (int r = 1; works && r < group->size; r++)
        tt_work_free(works[r]);
    for (int r = 1; !status && r < group->size; r++)
        status = post(group, call, false, r, ALL_HERE, NULL);
    free(works);
    return status;
}

tt_status tt__plugin_monitored_barrier(tt_group *group, const tt_call *call) {
    if (group->rank == 0)
        return as_root(group, call);
    TT__TRY(post(group, call, false, 0, HERE, NULL));
    return post(group, call, true, 0, ALL_HERE, NULL);
}
