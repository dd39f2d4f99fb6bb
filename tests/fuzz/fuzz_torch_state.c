/* The state of PyTorch's rendezvous, which any process that reaches the store may have written.
 *
 * Input: a mode byte, then
 *   even mode: a pickle.
 *   odd mode: what the store holds, base64.
 * What is read can be written and read again, and is the same; nodes can take every step from it. */
#include "elastic/torch_rendezvous.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_same(const tt__torch_member *a, const tt__torch_member *b) {
    return b && a->participant == b->participant && a->waiting == b->waiting && a->redundant == b->redundant &&
           a->beats == b->beats && a->rank == b->rank && (!a->beats || a->beat_us == b->beat_us);
}

static void write_again(const tt__torch_state *state) {
    tt__torch_state again;
    tt__bytes text = {0};
    if (tt__torch_encode(state, &text) || tt__torch_decode(&again, text.data, text.size))
        abort();
    if (again.round != state->round || again.complete != state->complete || again.closed != state->closed ||
        again.has_deadline != state->has_deadline || (state->has_deadline && again.deadline_us != state->deadline_us) ||
        again.count != state->count)
        abort();
    for (size_t i = 0; i < state->count; i++)
        if (!is_same(&state->members[i], tt__torch_find(&again, &state->members[i].node)))
            abort();
    tt__torch_state_free(&again);
    tt__bytes_free(&text);
}

/* Repeat an operation until it is done. Only nodes of the state and one that is new take part, so that it comes to an
 * end. */
static void walk(tt__torch_state *state, tt__torch_verdict (*operation)(const tt__torch_step *), int64_t late_ms) {
    const tt__torch_settings settings = {2, 3, 1000, 1000, 3};
    tt__torch_node node = {"new", 1, 0};
    bool restarts = false;
    if (state->count && late_ms < 0)
        node = state->members[0].node;
    int64_t now_us = state->count && state->members[0].beats ? state->members[0].beat_us + 500000 : 1000000000000;
    const tt__torch_step step = {state, &settings, &node, now_us, late_ms, &restarts};
    tt__torch_sanitize(state, &settings, now_us);
    for (int i = 0; operation(&step) == TT__TORCH_WRITE; i++)
        if (i > 8)
            abort();
    write_again(state);
}

static void check_state(tt__torch_state *state) {
    for (size_t i = 0; i < state->count; i++)
        if (tt__torch_find(state, &state->members[i].node) != &state->members[i])
            abort();
    write_again(state);
    walk(state, tt__torch_join, -1);
    walk(state, tt__torch_keep_alive, -1);
    walk(state, tt__torch_join, 1);
    walk(state, tt__torch_leave, -1);
    walk(state, tt__torch_depart, -1);
    walk(state, tt__torch_close, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt__torch_state state = {0};
    if (!size || size > 1 << 16)
        return 0;
    tt_status status =
        data[0] & 1 ? tt__torch_decode(&state, data + 1, size - 1) : tt__torch_unpickle(&state, data + 1, size - 1);
    if (!status)
        check_state(&state);
    else if (status != TT_ERR_FORMAT && status != TT_ERR_UNSUPPORTED)
        abort();
    tt__torch_state_free(&state);
    return 0;
}
