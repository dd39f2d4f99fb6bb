/* direct, binomial and chain, for broadcast: down a tree, in segments; each rank sends a segment on while the next
 * arrives.
 *
 * N ranks, n bytes in s segments. Ranks count from the root: v = rank - root, modulo N.
 *              parent of v                steps           bytes sent a rank
 *   direct     0                          1               root (N-1) n
 *   binomial   v without its lowest bit   log2 N + s - 1  root log2 N n, others at most that
 *   chain      v - 1                      N + s - 2       n
 * direct serves up to 64 ranks. A chain is best for long buffers, where N is small beside s. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct tree {
    tt__round_state rounds;
    uint64_t bytes, segment;
    uint32_t segments;
    int v;
} tree;

static bool is_chain(const tt_work *work) { return work->algorithm == &tt__broadcast_chain; }
static bool tree_is_direct(const tt_work *work) { return work->algorithm == &tt__broadcast_direct; }

static int tree_rank_of(const tt_work *work, int v) { return (v + work->call.root) % work->group->size; }

static int tree_parent(const tt_work *work, int v) {
    return tree_is_direct(work) ? 0 : is_chain(work) ? v - 1 : v & (v - 1);
}

/* Return the i-th child of v, the one with most descendants first; N or more: there is none. */
static int tree_child(const tt_work *work, int v, int i) {
    int ranks = work->group->size;
    if (tree_is_direct(work))
        return v ? ranks : i + 1;
    if (is_chain(work))
        return i ? ranks : v + 1;
    int bit = v > 0 ? __builtin_ctz((unsigned)v) - 1 : tt__log2_ceil(ranks) - 1;
    while (bit >= 0 && v + (1 << bit) >= ranks)
        bit--;
    bit -= i;
    return bit < 0 || bit > 30 ? ranks : v + (1 << bit);
}

static tt_status tree_plan(tt_work *work) {
    tree *t = TT__STATE(tree, work);
    size_t bytes = work->call.count * tt_dtype_size(work->call.dtype),
           segment = tree_is_direct(work) ? bytes : tt__segment(bytes, 1, 1);
    uint32_t segments = tree_is_direct(work) ? 1 : tt__segments(bytes, segment);
    int ranks = work->group->size, v = tt__neighbour(work->group, -work->call.root);
    TT__TRY(tt__rounds_plan(work, segments + (v > 0), (uint32_t)ranks));
    t->bytes = bytes, t->segment = segment, t->segments = segments, t->v = v;
    return TT_OK;
}

static unsigned char *segment_of(const tree *t, const tt_work *work, uint32_t s, size_t *n) {
    *n = t->segments == 1 ? t->bytes : tt__segment_count(t->bytes, t->segment, s);
    return (unsigned char *)work->call.recv + s * t->segment;
}

/* Send segment s to the children. */
static void hand_on(tt_work *work, uint32_t round, uint32_t s) {
    const tree *t = TT__STATE(tree, work);
    size_t n;
    const unsigned char *data = segment_of(t, work, s, &n);
    for (int i = 0, child; (child = tree_child(work, t->v, i)) < work->group->size; i++)
        tt__round_send(work, round, tree_rank_of(work, child), s, data, n);
}

/* Post the receive of a segment, except in the root. */
static void tree_early(tt_work *work, uint32_t round) {
    const tree *t = TT__STATE(tree, work);
    size_t n;
    if (round >= t->segments)
        return;
    if (!t->v) {
        hand_on(work, round, round);
        return;
    }
    unsigned char *data = segment_of(t, work, round, &n);
    tt__round_recv(work, round, tree_rank_of(work, tree_parent(work, t->v)), round, data, n);
}

/* Send on what came in the round before. */
static void tree_post(tt_work *work, uint32_t round) {
    if (TT__STATE(tree, work)->v && round)
        hand_on(work, round, round - 1);
}

static tt__next tree_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = tree_plan, .early = tree_early, .post = tree_post};
    return tt__rounds_next(work, &rounds);
}

static bool tree_serves_direct(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size <= TT__DIRECT_RANKS;
}

const tt__algorithm tt__broadcast_direct = {"direct", TT_OP_BROADCAST, .serves = tree_serves_direct, .next = tree_next};
const tt__algorithm tt__broadcast_binomial = {"binomial", TT_OP_BROADCAST, .next = tree_next};
const tt__algorithm tt__broadcast_chain = {"chain", TT_OP_BROADCAST, .next = tree_next};
