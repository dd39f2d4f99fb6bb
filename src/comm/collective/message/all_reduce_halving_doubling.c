/* halving_doubling, for all_reduce: reduce_scatter by vector halving with distance doubling (rounds.h), then
 * all_gather by the same exchanges backwards.
 *
 * N ranks, p the largest power of two not above it, n bytes (w: of the same as partial results; 2 n for f16 and bf16,
 * which travel as f32 until they are rounded, else n).
 *   steps              2 log2 p; and 2 if N is not a power of two: the pairs' odd ranks hand in their elements and get
 *                      the result back
 *   bytes sent a rank  (p-1)/p (w + n); a pair's even rank also n, its odd rank w alone
 *   reduced            (p-1)/p w, and w by a pair's even rank
 * Rabenseifner: Optimization of collective reduction operations, 2004, there with distance halving. Distances double
 * here, because the summation order joins adjacent ranks first. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

/* Rounds: fold (if any), levels 0..log2 p - 1, the same backwards, unfold (if any). */
typedef struct halving_doubling {
    tt__round_state rounds;
    tt__halving h;
    uint64_t count;
    unsigned char *sum;     /* (count) partial results: the buffer itself, where a partial result is an element */
    unsigned char *landing; /* what peers send: each round has its own place */
    uint32_t first, back;   /* numbers of the first round of the levels, and of the way back */
} halving_doubling;

static tt__partial halving_doubling_partial_of(const tt_work *work) {
    return tt__partial_of(&work->call, work->group->size);
}

static size_t element_size(const tt_work *work) { return tt_dtype_size(work->call.dtype); }

/* Return the first element of a position; `count` for the end. */
static size_t halving_doubling_begin_of(const halving_doubling *a, const tt_work *work, int position) {
    return position == a->h.units ? a->count : tt__slice_of(a->count, element_size(work), a->h.units, position).at;
}

/* Return the range of elements that `unit` holds before level k. */
static tt__slice halving_doubling_held(const halving_doubling *a, const tt_work *work, int unit, int k) {
    int first = tt__halving_first(&a->h, unit, k);
    size_t at = halving_doubling_begin_of(a, work, first);
    return (tt__slice){at, halving_doubling_begin_of(a, work, first + tt__halving_held(&a->h, k)) - at};
}

static tt_status halving_doubling_plan(tt_work *work) {
    halving_doubling *a = TT__STATE(halving_doubling, work);
    const tt__partial partial = halving_doubling_partial_of(work);
    tt__operand operand = tt__operand_of(work);
    bool in_place = partial.dtype == partial.from;
    a->h = tt__halving_of(work->group->rank, work->group->size);
    a->first = a->h.folded > 0;
    a->back = a->first + (uint32_t)a->h.levels;
    size_t share = tt__slice_of(operand.count, element_size(work), a->h.units, 0).n;
    size_t whole = in_place ? 0 : TT__ALIGN_UP(operand.count * partial.size, 64);
    TT__TRY(tt__machine_scratch(work, whole + (a->first * operand.count + share * (size_t)a->h.units) * partial.size));
    TT__TRY(tt__rounds_plan(work, 2 * a->back, 2));
    operand = tt__operand_of(work);
    a->count = operand.count;
    a->sum = in_place ? operand.data : tt__machine_memory(work);
    a->landing = tt__machine_memory(work) + whole;
    tt__partial_leaf(&partial, a->sum, operand.data, operand.count);
    return TT_OK;
}

static int partner_of(const halving_doubling *a, int level) { return a->h.unit ^ 1 << level; }

/* Return where the elements lie that arrive in a round of the reduce_scatter: the fold's, then those of each level,
 * which are of p/2, p/4, ... 1 positions. */
static unsigned char *halving_doubling_landing_of(const halving_doubling *a, const tt_work *work, uint32_t round) {
    size_t size = halving_doubling_partial_of(work).size,
           share = tt__slice_of(a->count, element_size(work), a->h.units, 0).n;
    if (round < a->first)
        return a->landing;
    int before = a->h.units - tt__halving_held(&a->h, (int)(round - a->first));
    return a->landing + (a->first * a->count + share * (size_t)before) * size;
}

/* Post the receives of the reduce_scatter early. */
static void halving_doubling_early(tt_work *work, uint32_t round) {
    const halving_doubling *a = TT__STATE(halving_doubling, work);
    size_t size = halving_doubling_partial_of(work).size;
    if (a->h.gives || round >= a->back)
        return;
    if (round < a->first) {
        if (a->h.unit < a->h.folded)
            tt__round_recv(work, round, work->group->rank + 1, round, a->landing, a->count * size);
        return;
    }
    int level = (int)(round - a->first);
    tt__slice kept = halving_doubling_held(a, work, a->h.unit, level + 1);
    tt__round_recv(work, round, tt__unit_rank(&a->h, partner_of(a, level)), round,
                   halving_doubling_landing_of(a, work, round), kept.n * size);
}

static void post_there(tt_work *work, uint32_t round) {
    const halving_doubling *a = TT__STATE(halving_doubling, work);
    size_t size = halving_doubling_partial_of(work).size;
    if (a->h.gives) {
        if (!round)
            tt__round_send(work, round, work->group->rank - 1, round, a->sum, a->count * size);
        return;
    }
    if (round < a->first)
        return;
    int level = (int)(round - a->first), other = partner_of(a, level);
    tt__slice given = halving_doubling_held(a, work, other, level + 1);
    tt__round_send(work, round, tt__unit_rank(&a->h, other), round, a->sum + given.at * size, given.n * size);
}

/* Post a round of the all_gather, on finished elements. A range that arrives is one that this rank sent away in the
 * reduce_scatter. */
static void post_back(tt_work *work, uint32_t round) {
    const halving_doubling *a = TT__STATE(halving_doubling, work);
    unsigned char *data = tt__operand_of(work).data;
    size_t size = element_size(work);
    int level = a->h.levels - 1 - (int)(round - a->back);
    if (level >= 0 && !a->h.gives) {
        int other = partner_of(a, level), to = tt__unit_rank(&a->h, other);
        tt__slice mine = halving_doubling_held(a, work, a->h.unit, level + 1),
                  theirs = halving_doubling_held(a, work, other, level + 1);
        tt__round_recv(work, round, to, round, data + theirs.at * size, theirs.n * size);
        tt__round_send(work, round, to, round, data + mine.at * size, mine.n * size);
    }
    if (level < 0 && a->h.gives)
        tt__round_recv(work, round, work->group->rank - 1, round, data, a->count * size);
    else if (level < 0 && a->h.unit < a->h.folded)
        tt__round_send(work, round, work->group->rank + 1, round, data, a->count * size);
}

static void halving_doubling_post(tt_work *work, uint32_t round) {
    if (round < TT__STATE(halving_doubling, work)->back)
        post_there(work, round);
    else
        post_back(work, round);
}

static void join_level(const halving_doubling *a, tt_work *work, uint32_t round, const tt__partial *partial) {
    int level = (int)(round - a->first);
    tt__slice kept = halving_doubling_held(a, work, a->h.unit, level + 1);
    unsigned char *mine = a->sum + kept.at * partial->size, *theirs = halving_doubling_landing_of(a, work, round);
    bool left = !(a->h.unit >> level & 1);
    tt__partial_join(partial, mine, left ? mine : theirs, left ? theirs : mine, kept.n);
}

static void halving_doubling_take(tt_work *work, uint32_t round) {
    const halving_doubling *a = TT__STATE(halving_doubling, work);
    const tt__partial partial = halving_doubling_partial_of(work);
    if (a->h.gives || round >= a->back)
        return;
    if (round >= a->first)
        join_level(a, work, round, &partial);
    else if (a->h.unit < a->h.folded)
        tt__partial_join(&partial, a->sum, a->sum, a->landing, a->count);
    if (round + 1 == a->back) {
        tt__slice mine = halving_doubling_held(a, work, a->h.unit, a->h.levels);
        tt__partial_finish(&partial, tt__operand_of(work).data + mine.at * element_size(work),
                           a->sum + mine.at * partial.size, mine.n);
    }
}

static tt__next halving_doubling_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = halving_doubling_plan,
                                      .early = halving_doubling_early,
                                      .post = halving_doubling_post,
                                      .take = halving_doubling_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__all_reduce_halving_doubling = {"halving_doubling", TT_OP_ALL_REDUCE,
                                                       .next = halving_doubling_next};
