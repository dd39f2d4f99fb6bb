/* The machine that runs algorithms in rounds, and how they cut buffers. */
#include "comm/collective/message/rounds.h"

enum { SEGMENT_BYTES = 256 << 10, SEGMENT_LEAST = 32 << 10, SEGMENTS_IN_MEMORY = 4 << 20 };

static tt__round_state *rounds_state(tt_work *work) { return TT__STATE(tt__round_state, work); }

tt_status tt__rounds_plan(tt_work *work, uint32_t count, uint32_t room) {
    *rounds_state(work) = (tt__round_state){.count = count, .room = room};
    return tt__work_messages(work, (size_t)room * 2);
}

static size_t slot_of(tt_work *work, uint32_t round) {
    tt__round_state *s = rounds_state(work);
    return (size_t)(round & 1) * s->room + s->used[round & 1]++;
}

void tt__round_send(tt_work *work, uint32_t round, int to, uint32_t step, const void *data, size_t bytes) {
    tt__work_send(work, slot_of(work, round), to, step, data, bytes);
}

void tt__round_recv(tt_work *work, uint32_t round, int from, uint32_t step, void *data, size_t bytes) {
    tt__work_recv(work, slot_of(work, round), from, step, data, bytes);
}

/* Count the messages of the round that are under way. */
static uint32_t open_messages(tt_work *work, uint32_t round) {
    const tt__round_state *s = rounds_state(work);
    const tt__message *of = work->messages + (size_t)(round & 1) * s->room;
    uint32_t open = 0;
    for (uint32_t i = 0; i < s->used[round & 1]; i++)
        open += !of[i].done;
    return open;
}

/* Has a message of the round failed? One that fails as soon as it is posted is never waited for, and its place is
 * reused two rounds later. */
static bool round_has_failed(tt_work *work, uint32_t round) {
    const tt__round_state *s = rounds_state(work);
    const tt__message *of = work->messages + (size_t)(round & 1) * s->room;
    tt_status worst = TT_OK;
    for (uint32_t i = 0; i < s->used[round & 1] && !worst; i++)
        worst = of[i].status;
    return worst;
}

/* Wait until at least so many more messages are done; they may be of the next round. */
static tt__next wait_for_round(tt_work *work, uint32_t open) {
    uint32_t pending = atomic_load_explicit(&work->pending, memory_order_relaxed);
    work->wait = (tt__wait){.what = TT__MESSAGES, .target = pending > open ? pending - open : 0};
    return TT__NEXT_WAIT;
}

static void rounds_begin(tt_work *work, const tt__rounds *rounds, uint32_t round) {
    tt__round_state *s = rounds_state(work);
    if (!round && rounds->early)
        rounds->early(work, 0);
    if (rounds->post)
        rounds->post(work, round);
    s->used[(round + 1) & 1] = 0;
    if (rounds->early && round + 1 < s->count)
        rounds->early(work, round + 1);
}

/* work->stage: 0 before the plan, then the current round plus 1. */
tt__next tt__rounds_next(tt_work *work, const tt__rounds *rounds) {
    if (!work->stage) {
        if (rounds->plan(work))
            return TT__NEXT_FAILED;
        work->stage = 1;
        if (rounds_state(work)->count)
            rounds_begin(work, rounds, 0);
    }
    for (uint32_t round; (round = (uint32_t)work->stage - 1) < rounds_state(work)->count; work->stage++) {
        uint32_t open = open_messages(work, round);
        if (round_has_failed(work, round))
            return TT__NEXT_LOST_MESSAGE;
        if (open)
            return wait_for_round(work, open);
        if (rounds->take)
            rounds->take(work, round);
        if (round + 1 < rounds_state(work)->count)
            rounds_begin(work, rounds, round + 1);
    }
    return TT__NEXT_DONE;
}

size_t tt__segment(size_t count, size_t size, int streams) {
    size_t bytes = SEGMENTS_IN_MEMORY / (size_t)(streams > 0 ? streams : 1);
    bytes = bytes > SEGMENT_BYTES ? SEGMENT_BYTES : bytes < SEGMENT_LEAST ? SEGMENT_LEAST : bytes;
    size_t segment = bytes / size;
    return count < segment ? (count ? count : 1) : segment;
}
