/* binomial, for reduce: partial results are joined on the way to the root, along the tree of the one summation order.
 *
 * N ranks, p the largest power of two not above it, n bytes (w: of the same as partial results; 2 n for f16 and bf16,
 * else n).
 *   steps              log2 p, and at most 1 more if N is not a power of two
 *   bytes sent a rank  w (root: 0)
 *   reduced            at most log2 p + 1 times w, by the root
 * Units as in rounds.h. At level k two units whose numbers differ in bit k join: the one whose bit k equals the root
 * unit's receives. So the last two meet at the root, whichever rank it is. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

/* Rounds: fold (if any), levels 0..log2 p - 1. */
typedef struct binomial {
    tt__round_state rounds;
    tt__halving h;
    int root_unit;
    uint64_t bytes;            /* of partial results */
    const unsigned char *held; /* the leaf or what was joined so far */
    unsigned char *sum;
    unsigned char *landing; /* (2, bytes) */
} binomial;

static tt__partial binomial_reduce_partial_of(const tt_work *work) {
    return tt__partial_of(&work->call, work->group->size);
}

/* Return the rank that acts for a unit: in a pair the even one, unless the other is the root. */
static int binomial_reduce_rank_of(const binomial *b, const tt_work *work, int unit) {
    return unit == b->root_unit ? work->call.root : tt__unit_rank(&b->h, unit);
}

static bool binomial_reduce_acts(const binomial *b, const tt_work *work) {
    return binomial_reduce_rank_of(b, work, b->h.unit) == work->group->rank;
}

/* What this rank does in a round. */
typedef struct role {
    enum { NOTHING, SENDS, RECEIVES } what;
    int peer;
    bool left; /* what this rank holds belongs to the left of what it receives */
} role;

static role role_of(const binomial *b, const tt_work *work, uint32_t round) {
    int rank = work->group->rank, level = (int)round - (b->h.folded > 0), relative = b->h.unit ^ b->root_unit;
    if (level < 0) {
        if (b->h.unit >= b->h.folded)
            return (role){NOTHING, 0, false};
        return (role){binomial_reduce_acts(b, work) ? RECEIVES : SENDS, rank ^ 1, rank % 2 == 0};
    }
    if (!binomial_reduce_acts(b, work) || relative & ((1 << level) - 1))
        return (role){NOTHING, 0, false};
    int other = b->h.unit ^ 1 << level;
    return (role){relative >> level & 1 ? SENDS : RECEIVES, binomial_reduce_rank_of(b, work, other),
                  !(b->h.unit >> level & 1)};
}

static tt_status binomial_reduce_plan(tt_work *work) {
    binomial *b = TT__STATE(binomial, work);
    const tt__partial partial = binomial_reduce_partial_of(work);
    b->h = tt__halving_of(work->group->rank, work->group->size);
    b->root_unit = tt__halving_of(work->call.root, work->group->size).unit;
    b->bytes = work->call.count * partial.size;
    size_t area = TT__ALIGN_UP(b->bytes, 64);
    TT__TRY(tt__machine_scratch(work, 3 * area));
    TT__TRY(tt__rounds_plan(work, (uint32_t)b->h.levels + (b->h.folded > 0), 1));
    b->sum = tt__machine_memory(work);
    b->landing = b->sum + area;
    b->held = work->call.send;
    if (!partial.as_is) {
        tt__partial_leaf(&partial, b->sum, b->held, work->call.count);
        b->held = b->sum;
    }
    return TT_OK;
}

static unsigned char *binomial_reduce_landing_of(const binomial *b, uint32_t round) {
    return b->landing + (round & 1) * TT__ALIGN_UP(b->bytes, 64);
}

static void binomial_reduce_early(tt_work *work, uint32_t round) {
    const binomial *b = TT__STATE(binomial, work);
    role does = role_of(b, work, round);
    if (does.what == RECEIVES)
        tt__round_recv(work, round, does.peer, round, binomial_reduce_landing_of(b, round), b->bytes);
}

static void binomial_reduce_post(tt_work *work, uint32_t round) {
    const binomial *b = TT__STATE(binomial, work);
    role does = role_of(b, work, round);
    if (does.what == SENDS)
        tt__round_send(work, round, does.peer, round, b->held, b->bytes);
}

static void binomial_reduce_take(tt_work *work, uint32_t round) {
    binomial *b = TT__STATE(binomial, work);
    const tt__partial partial = binomial_reduce_partial_of(work);
    role does = role_of(b, work, round);
    if (does.what == RECEIVES) {
        const void *came = binomial_reduce_landing_of(b, round);
        tt__partial_join(&partial, b->sum, does.left ? b->held : came, does.left ? came : b->held, work->call.count);
        b->held = b->sum;
    }
    if (round + 1 == b->rounds.count && work->group->rank == work->call.root)
        tt__partial_finish(&partial, work->call.recv, b->held, work->call.count);
}

static tt__next binomial_reduce_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = binomial_reduce_plan,
                                      .early = binomial_reduce_early,
                                      .post = binomial_reduce_post,
                                      .take = binomial_reduce_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__reduce_binomial = {"binomial", TT_OP_REDUCE, .next = binomial_reduce_next};
