#include "comm/collective/message/rounds.h"

#include "base/error.h"
#include "comm/reduce/reduce_tree.h"

#include <string.h>

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

/* ---- memory */

static size_t packed_count(const tt_call *call) {
    size_t count = 0;
    for (int64_t i = 0; i < call->buffers; i++)
        count += call->recv_counts[i];
    return count;
}

static bool is_packed(const tt_work *work) { return work->call.op == TT_OP_ALL_REDUCE_COALESCED; }

static size_t packed_bytes(const tt_work *work) {
    return is_packed(work) ? TT__ALIGN_UP(packed_count(&work->call) * tt_dtype_size(work->call.dtype), 64) : 0;
}

/* Copy between the call's buffers and where they are packed. */
static void copy_packed(const tt_work *work, bool pack) {
    unsigned char *packed = work->scratch;
    for (int64_t i = 0; i < work->call.buffers; i++) {
        size_t bytes = work->call.recv_counts[i] * tt_dtype_size(work->call.dtype);
        if (bytes)
            memcpy(pack ? packed : work->call.bufs[i], pack ? work->call.bufs[i] : packed, bytes);
        packed += bytes;
    }
}

tt_status tt__machine_scratch(tt_work *work, size_t bytes) {
    TT__TRY(tt__work_scratch(work, packed_bytes(work) + bytes));
    if (is_packed(work))
        copy_packed(work, true);
    return TT_OK;
}

/* Copy packed buffers back to where they came from. */
static void unpack(const tt_work *work) {
    if (is_packed(work))
        copy_packed(work, false);
}

unsigned char *tt__machine_memory(const tt_work *work) { return (unsigned char *)work->scratch + packed_bytes(work); }

tt__operand tt__operand_of(const tt_work *work) {
    if (!is_packed(work))
        return (tt__operand){work->call.recv, work->call.count};
    return (tt__operand){work->scratch, packed_count(&work->call)};
}

/* ---- partial results */

tt__partial tt__partial_of(const tt_call *call, int ranks) {
    tt__partial partial = {.from = call->dtype, .dtype = tt__partial_dtype(call->dtype), .op = call->reduce_op};
    partial.size = tt_dtype_size(partial.dtype);
    partial.scale = tt__leaf_scale(call->dtype, call->reduce_op, ranks, call->factor);
    partial.divisor = tt__root_divisor(call->dtype, call->reduce_op, ranks);
    if (call->reduce_op == TT_AVG || call->reduce_op == TT_PREMUL_SUM)
        partial.op = TT_SUM;
    partial.as_is = partial.dtype == partial.from && (partial.op == call->reduce_op || partial.divisor != 1) &&
                    partial.from != TT_BOOL;
    return partial;
}

tt__partial tt__wire_of(const tt_call *call, int ranks) {
    if (call->reduce_op == TT_PREMUL_SUM)
        return tt__partial_of(call, ranks);
    return (tt__partial){call->dtype, call->dtype, tt_dtype_size(call->dtype), call->reduce_op, 1, 1, true};
}

void tt__partial_leaf(const tt__partial *partial, void *dst, const void *leaf, size_t count) {
    tt__reduce_leaf(dst, leaf, count, partial->from, partial->scale);
}

void tt__partial_join(const tt__partial *partial, void *dst, const void *left, const void *right, size_t count) {
    tt__reduce_join(dst, left, right, count, partial->from, partial->op);
}

void tt__partial_finish(const tt__partial *partial, void *dst, const void *src, size_t count) {
    tt__reduce_round(dst, src, count, partial->from, partial->divisor);
}

/* ---- halving */

tt__halving tt__halving_of(int rank, int ranks) {
    tt__halving h = {.units = 1};
    for (; 2 * h.units <= ranks; h.levels++)
        h.units *= 2;
    h.folded = ranks - h.units;
    h.gives = rank < 2 * h.folded && rank % 2;
    h.unit = rank < 2 * h.folded ? rank / 2 : rank - h.folded;
    return h;
}

int tt__halving_first(const tt__halving *h, int unit, int k) {
    int first = 0;
    for (int level = 0; level < k; level++)
        if (unit >> level & 1)
            first += h->units >> (level + 1);
    return first;
}

int tt__halving_unit_of(const tt__halving *h, int position) {
    int unit = 0;
    for (int level = 0; level < h->levels; level++)
        unit |= (position >> (h->levels - 1 - level) & 1) << level;
    return unit;
}

static tt__next packed_next(tt_work *work) {
    tt__next step = work->packed_as->next(work);
    if (step == TT__NEXT_DONE)
        unpack(work);
    return step;
}

const tt__algorithm tt__all_reduce_coalesced_packed = {"packed", TT_OP_ALL_REDUCE_COALESCED, .next = packed_next};
