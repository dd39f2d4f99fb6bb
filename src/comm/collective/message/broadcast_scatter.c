/* scatter_all_gather, for broadcast: the root sends one slice to each other rank, and they send their slices to each
 * other. By segments, the two overlap.
 *
 * N ranks, n bytes.
 *   steps              2
 *   bytes sent a rank  root n, others (N-2)/(N-1) n
 * For long buffers and 3 to 64 ranks. Van de Geijn: On global combine operations, 1994; here both parts are direct. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct scatter {
    tt__round_state rounds;
    uint64_t bytes, segment;
} scatter;

/* Return the rank at place i among those that are not the root; return this rank's place, -1 for the root. */
static int rank_at(const tt_work *work, int i) { return (work->call.root + 1 + i) % work->group->size; }
static int scatter_broadcast_place_of(const tt_work *work) { return tt__neighbour(work->group, -work->call.root) - 1; }

static tt__slice scatter_broadcast_slice_of(const scatter *a, const tt_work *work, uint32_t s, int i) {
    tt__slice slice = tt__slice_of(tt__segment_count(a->bytes, a->segment, s), 1, work->group->size - 1, i);
    slice.at += s * a->segment;
    return slice;
}

static tt_status scatter_broadcast_plan(tt_work *work) {
    scatter *a = TT__STATE(scatter, work);
    size_t bytes = work->call.count * tt_dtype_size(work->call.dtype), segment = tt__segment(bytes, 1, 1) * 4;
    segment = bytes && bytes < segment ? bytes : segment;
    TT__TRY(tt__rounds_plan(work, tt__segments(bytes, segment) + 1, 2 * (uint32_t)work->group->size));
    a->bytes = bytes, a->segment = segment;
    return TT_OK;
}

static void send_slice(tt_work *work, uint32_t round, uint32_t s, int i, int to, uint32_t step) {
    tt__slice slice = scatter_broadcast_slice_of(TT__STATE(scatter, work), work, s, i);
    tt__round_send(work, round, to, step, (unsigned char *)work->call.recv + slice.at, slice.n);
}

static void recv_slice(tt_work *work, uint32_t round, uint32_t s, int i, int from, uint32_t step) {
    tt__slice slice = scatter_broadcast_slice_of(TT__STATE(scatter, work), work, s, i);
    tt__round_recv(work, round, from, step, (unsigned char *)work->call.recv + slice.at, slice.n);
}

static void scatter_broadcast_early(tt_work *work, uint32_t round) {
    int place = scatter_broadcast_place_of(work), others = work->group->size - 1;
    bool last = round + 1 == TT__STATE(scatter, work)->rounds.count;
    for (int i = 0; place < 0 && !last && i < others; i++)
        send_slice(work, round, round, i, rank_at(work, i), 2 * round);
    if (place >= 0 && !last)
        recv_slice(work, round, round, place, work->call.root, 2 * round);
    for (int i = 0; place >= 0 && round && i < others; i++)
        if (i != place)
            recv_slice(work, round, round - 1, i, rank_at(work, i), 2 * round - 1);
}

static void scatter_broadcast_post(tt_work *work, uint32_t round) {
    int place = scatter_broadcast_place_of(work), others = work->group->size - 1;
    for (int i = 1; place >= 0 && round && i < others; i++)
        send_slice(work, round, round - 1, place, rank_at(work, (place + i) % others), 2 * round - 1);
}

static tt__next scatter_broadcast_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = scatter_broadcast_plan, .early = scatter_broadcast_early, .post = scatter_broadcast_post};
    return tt__rounds_next(work, &rounds);
}

static bool scatter_broadcast_serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size > 2 && group->size <= TT__DIRECT_RANKS;
}

const tt__algorithm tt__broadcast_scatter = {"scatter_all_gather", TT_OP_BROADCAST, .serves = scatter_broadcast_serves,
                                             .next = scatter_broadcast_next};
