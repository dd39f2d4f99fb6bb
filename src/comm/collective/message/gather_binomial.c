/* binomial, for gather and scatter: a subtree's blocks travel together.
 *
 * N ranks, blocks of m bytes. Ranks count from the root: v = rank - root, modulo N; v's subtree is v .. v + its lowest
 * bit - 1.
 *   steps              log2 N, rounded up
 *   bytes sent a rank  gather at most N/2 m (the root 0); scatter the root (N-1) m, others less than N/2 m
 *   copied             N m by the root
 * Few messages at the root, at the price of blocks that travel several times: for many ranks and small blocks. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct binomial {
    tt__round_state rounds;
    uint64_t block;
    unsigned char *blocks; /* of the subtree, from v on */
    int v, levels;
} binomial;

static bool binomial_is_gather(const tt_work *work) { return work->call.op == TT_OP_GATHER; }

static int binomial_rank_of(const tt_work *work, int v) { return (v + work->call.root) % work->group->size; }

/* Count the ranks in the subtree that begins at v and hangs on its bit `level`. */
static int subtree_size(const tt_work *work, int v, int level) {
    int left = work->group->size - v;
    return left < 1 << level ? left : 1 << level;
}

/* Return v's lowest bit; the root has all levels below it. */
static int level_of(const binomial *b) { return b->v ? __builtin_ctz((unsigned)b->v) : b->levels; }

static void copy_root(const binomial *b, const tt_work *work) {
    for (int v = 0; v < work->group->size; v++) {
        unsigned char *block = b->blocks + (size_t)v * b->block;
        if (binomial_is_gather(work))
            tt__copy_block(tt__recv_block(&work->call, binomial_rank_of(work, v)), block);
        else
            tt__copy_block((tt__rank_block){block, b->block},
                           tt__send_block(&work->call, binomial_rank_of(work, v)).data);
    }
}

static tt_status binomial_plan(tt_work *work) {
    binomial *b = TT__STATE(binomial, work);
    int v = tt__neighbour(work->group, -work->call.root), levels = tt__log2_ceil(work->group->size);
    size_t block = work->call.count * tt_dtype_size(work->call.dtype);
    *b = (binomial){.v = v, .levels = levels};
    TT__TRY(tt__machine_scratch(work, block * (size_t)subtree_size(work, v, level_of(b))));
    TT__TRY(tt__rounds_plan(work, (uint32_t)levels, 1));
    b->block = block;
    b->blocks = tt__machine_memory(work);
    if (binomial_is_gather(work))
        tt__copy_block((tt__rank_block){b->blocks, block}, work->call.send);
    else if (!v)
        copy_root(b, work);
    return TT_OK;
}

/* Count the bytes exchanged with a child or the parent at a level; 0 at levels in which this rank takes no part. *up:
 * with the parent. */
static size_t level_bytes(const binomial *b, const tt_work *work, int level, bool *up, int *peer) {
    *up = level == level_of(b);
    int other = *up ? b->v - (1 << level) : b->v + (1 << level);
    if (level > level_of(b) || other >= work->group->size)
        return 0;
    *peer = binomial_rank_of(work, other);
    return (size_t)subtree_size(work, *up ? b->v : other, level) * b->block;
}

/* Post a round. Levels go up in a gather, down in a scatter. */
static void early_or_post(tt_work *work, uint32_t round, bool binomial_early) {
    const binomial *b = TT__STATE(binomial, work);
    int level = binomial_is_gather(work) ? (int)round : b->levels - 1 - (int)round, peer = -1;
    bool up;
    size_t bytes = level_bytes(b, work, level, &up, &peer);
    if (peer < 0)
        return;
    unsigned char *data = b->blocks + (up ? 0 : b->block << level);
    if (up == binomial_is_gather(work)) {
        if (!binomial_early)
            tt__round_send(work, round, peer, 0, data, bytes);
    } else if (binomial_early) {
        tt__round_recv(work, round, peer, 0, data, bytes);
    }
}

static void binomial_early(tt_work *work, uint32_t round) { early_or_post(work, round, true); }
static void binomial_post(tt_work *work, uint32_t round) { early_or_post(work, round, false); }

static void binomial_take(tt_work *work, uint32_t round) {
    const binomial *b = TT__STATE(binomial, work);
    if (round + 1 < b->rounds.count)
        return;
    if (!binomial_is_gather(work))
        tt__copy_block((tt__rank_block){work->call.recv, b->block}, b->blocks);
    else if (!b->v)
        copy_root(b, work);
}

static tt__next binomial_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = binomial_plan, .early = binomial_early, .post = binomial_post, .take = binomial_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__gather_binomial = {"binomial", TT_OP_GATHER, .next = binomial_next};
const tt__algorithm tt__scatter_binomial = {"binomial", TT_OP_SCATTER, .next = binomial_next};
