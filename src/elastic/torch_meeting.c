#include "elastic/torch_meeting.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tt_status tt__torch_name_node(tt__torch_node *node, const char *address) {
    static _Atomic int64_t last_id;
    if (strlen(address) >= sizeof node->address)
        return tt__fail(TT_ERR_INVALID, "this node's address: expected less than %zu bytes, got \"%.60s...\"",
                        sizeof node->address, address);
    *node = (tt__torch_node){.pid = getpid(), .local_id = atomic_fetch_add(&last_id, 1)};
    snprintf(node->address, sizeof node->address, "%s", address);
    return TT_OK;
}

tt_status tt__torch_meeting_open(tt__torch_meeting *m, const char *run_id) {
    if (asprintf(&m->key, "torch.rendezvous.%s", run_id) < 0) {
        m->key = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for a rendezvous");
    }
    return tt_store_compare_set(m->store, m->key, "", 0, TT__TORCH_NO_STATE, strlen(TT__TORCH_NO_STATE), NULL);
}

void tt__torch_meeting_close(tt__torch_meeting *m) {
    free(m->key);
    m->key = NULL;
    tt_store_value_free(&m->token);
    tt__torch_state_free(&m->state);
}

/* Write the state, unless another node was faster. */
static tt_status meeting_write(tt__torch_meeting *m, tt_store_value *value) {
    tt__bytes text = {0};
    const void *expected = m->token.data ? m->token.data : TT__TORCH_NO_STATE;
    size_t size = m->token.data ? m->token.size : strlen(TT__TORCH_NO_STATE);
    tt_status status = tt__torch_encode(&m->state, &text);
    if (!status)
        status = tt_store_compare_set(m->store, m->key, expected, size, text.data, text.size, value);
    tt__bytes_free(&text);
    return status;
}

static tt_status meeting_sync(tt__torch_meeting *m) {
    tt_store_value value = {0};
    TT__TRY(m->dirty ? meeting_write(m, &value) : tt_store_get(m->store, m->key, &value));
    tt_store_value_free(&m->token);
    m->token = value;
    m->dirty = false;
    tt__torch_state_free(&m->state);
    TT__TRY(tt__torch_decode(&m->state, value.data, value.size));
    if (m->state.times == TT__TORCH_TIMES_UNKNOWN)
        m->state.times = m->times;
    m->times = m->state.times;
    return TT_OK;
}

tt_status tt__torch_meeting_step(tt__torch_meeting *m, tt__torch_verdict (*operation)(const tt__torch_step *step),
                                 int64_t late_ms, bool *restart_clock, tt__torch_verdict *verdict) {
    TT__TRY(meeting_sync(m));
    int64_t now_us = tt__realtime_ns() / 1000;
    tt__torch_sanitize(&m->state, &m->settings, now_us);
    const tt__torch_step step = {.state = &m->state,
                                 .settings = &m->settings,
                                 .node = &m->node,
                                 .now_us = now_us,
                                 .late_ms = late_ms,
                                 .restart_clock = restart_clock};
    *verdict = operation(&step);
    m->dirty = *verdict == TT__TORCH_WRITE;
    return TT_OK;
}
