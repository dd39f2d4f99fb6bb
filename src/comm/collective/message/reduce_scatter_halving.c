/* halving, for reduce_scatter: vector halving with distance doubling (rounds.h). Parts are first copied into the order
 * of positions: each rank ends with its own.
 *
 * N ranks, p the largest power of two not above it, parts of m bytes (w: of the same as partial results; 2 m for f16
 * and bf16, else m).
 *   steps              log2 p; and 2 if N is not a power of two: the pairs' odd ranks hand in all their elements and
 *                      get their part
 *   bytes sent a rank  about (p-1)/p N w; a pair's even rank also m, its odd rank N w alone
 *   reduced            about (p-1)/p N w, and N w by a pair's even rank
 *   copied             N w, into the order of positions
 * Fewer messages than direct, for many ranks or small parts. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

/* Rounds: fold (if any), levels, unfold (if any). */
typedef struct halving {
    tt__round_state rounds;
    tt__halving h;
    uint32_t first, last;   /* the first round of the levels, and the round after them */
    uint64_t part;          /* bytes of one, as partial results */
    const uint32_t *begins; /* (p+1) parts that lie before a position */
    unsigned char *sum;     /* (N) parts, in the order of positions */
    unsigned char *landing;
} halving;

static tt__partial halving_partial_of(const tt_work *work) { return tt__partial_of(&work->call, work->group->size); }

/* Return the rank of the first part at a position, and how many parts there are: a pair has two. */
static int parts_of(const halving *a, int position, int *first) {
    int unit = tt__halving_unit_of(&a->h, position);
    *first = tt__unit_rank(&a->h, unit);
    return unit < a->h.folded ? 2 : 1;
}

static void fill_begins(const halving *a, uint32_t *begins) {
    uint32_t before = 0;
    for (int position = 0, first; position < a->h.units; position++) {
        begins[position] = before;
        before += (uint32_t)parts_of(a, position, &first);
    }
    begins[a->h.units] = before;
}

static void fill_leaves(const halving *a, const tt_work *work) {
    const tt__partial partial = halving_partial_of(work);
    size_t bytes = work->call.count * tt_dtype_size(work->call.dtype);
    for (int position = 0; position < a->h.units; position++) {
        int first, parts = parts_of(a, position, &first);
        tt__partial_leaf(&partial, a->sum + a->begins[position] * a->part,
                         (const unsigned char *)work->call.send + (size_t)first * bytes,
                         (size_t)parts * work->call.count);
    }
}

static tt_status halving_plan(tt_work *work) {
    halving *a = TT__STATE(halving, work);
    a->h = tt__halving_of(work->group->rank, work->group->size);
    a->first = a->h.folded > 0;
    a->last = a->first + (uint32_t)a->h.levels;
    a->part = work->call.count * halving_partial_of(work).size;
    size_t begins = TT__ALIGN_UP(((size_t)a->h.units + 1) * sizeof(uint32_t), 64);
    size_t all = TT__ALIGN_UP((size_t)work->group->size * a->part, 64);
    TT__TRY(tt__machine_scratch(work, begins + all * (2 + a->first) + (size_t)a->h.levels * a->part));
    TT__TRY(tt__rounds_plan(work, a->last + a->first, 2));
    a->begins = (const uint32_t *)(const void *)tt__machine_memory(work);
    a->sum = tt__machine_memory(work) + begins;
    a->landing = a->sum + all;
    fill_begins(a, (uint32_t *)(void *)tt__machine_memory(work));
    fill_leaves(a, work);
    return TT_OK;
}

/* Return the range of bytes that `unit` holds before level k. */
static tt__slice halving_held(const halving *a, int unit, int k) {
    int first = tt__halving_first(&a->h, unit, k), end = first + tt__halving_held(&a->h, k);
    return (tt__slice){a->begins[first] * a->part, (a->begins[end] - a->begins[first]) * a->part};
}

/* Return where a level's bytes are received. The levels' areas lie one after the other: half of what was held, half of
 * that, and so on; where a pair's two parts can't be halved, one part more. */
static unsigned char *halving_landing_of(const halving *a, const tt_work *work, uint32_t round) {
    size_t all = (size_t)work->group->size * a->part;
    if (round < a->first)
        return a->landing;
    unsigned char *levels = a->landing + a->first * TT__ALIGN_UP(all, 64);
    size_t before = 0;
    for (int k = 1; k <= (int)(round - a->first); k++)
        before += halving_held(a, a->h.unit, k).n;
    return levels + before;
}

static void halving_early(tt_work *work, uint32_t round) {
    const halving *a = TT__STATE(halving, work);
    if (a->h.gives || round >= a->last)
        return;
    if (round < a->first) {
        if (a->h.unit < a->h.folded)
            tt__round_recv(work, round, work->group->rank + 1, round, a->landing, (size_t)work->group->size * a->part);
        return;
    }
    int level = (int)(round - a->first), from = tt__unit_rank(&a->h, a->h.unit ^ 1 << level);
    tt__round_recv(work, round, from, round, halving_landing_of(a, work, round),
                   halving_held(a, a->h.unit, level + 1).n);
}

/* Send the pair's odd rank its part, finished. */
static void post_unfold(tt_work *work, uint32_t round) {
    const halving *a = TT__STATE(halving, work);
    size_t bytes = work->call.count * tt_dtype_size(work->call.dtype);
    int rank = work->group->rank;
    if (a->h.gives)
        tt__round_recv(work, round, rank - 1, round, work->call.recv, bytes);
    else if (a->h.unit < a->h.folded)
        tt__round_send(work, round, rank + 1, round, a->landing, bytes);
}

static void halving_post(tt_work *work, uint32_t round) {
    const halving *a = TT__STATE(halving, work);
    if (round >= a->last) {
        post_unfold(work, round);
    } else if (round < a->first) {
        if (a->h.gives)
            tt__round_send(work, round, work->group->rank - 1, round, a->sum, (size_t)work->group->size * a->part);
    } else if (!a->h.gives) {
        int level = (int)(round - a->first), other = a->h.unit ^ 1 << level;
        tt__slice given = halving_held(a, other, level + 1);
        tt__round_send(work, round, tt__unit_rank(&a->h, other), round, a->sum + given.at, given.n);
    }
}

static void halving_finish(const halving *a, const tt_work *work) {
    const tt__partial partial = halving_partial_of(work);
    const unsigned char *mine = a->sum + halving_held(a, a->h.unit, a->h.levels).at;
    tt__partial_finish(&partial, work->call.recv, mine, work->call.count);
    if (a->h.unit < a->h.folded)
        tt__partial_finish(&partial, a->landing, mine + a->part, work->call.count);
}

static void halving_take(tt_work *work, uint32_t round) {
    const halving *a = TT__STATE(halving, work);
    const tt__partial partial = halving_partial_of(work);
    if (a->h.gives || round >= a->last)
        return;
    if (round >= a->first) {
        int level = (int)(round - a->first);
        tt__slice kept = halving_held(a, a->h.unit, level + 1);
        unsigned char *mine = a->sum + kept.at, *theirs = halving_landing_of(a, work, round);
        bool left = !(a->h.unit >> level & 1);
        tt__partial_join(&partial, mine, left ? mine : theirs, left ? theirs : mine, kept.n / partial.size);
    } else if (a->h.unit < a->h.folded) {
        tt__partial_join(&partial, a->sum, a->sum, a->landing, (size_t)work->group->size * work->call.count);
    }
    if (round + 1 == a->last)
        halving_finish(a, work);
}

static tt__next halving_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = halving_plan, .early = halving_early, .post = halving_post, .take = halving_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__reduce_scatter_halving = {"halving", TT_OP_REDUCE_SCATTER, .next = halving_next};
