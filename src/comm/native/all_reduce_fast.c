/* all_reduce without the machinery: a synchronous call on a group that shares memory, whose ranks have a CPU each and
 * no works, is published, reduced and done in one function. It does what reduce_inline.c and reduce_symmetric.c do,
 * word for word and step for step, so a peer can't tell. Whenever something has to be waited for longer than a moment,
 * or differs, the call goes on as an ordinary work from where it is.
 *
 * What costs time here costs every small all_reduce. So no clock is read but by the record, nothing is locked, nothing
 * is fenced, the record is written while the peers' words are on their way, and all of it is one function once it is
 * compiled, which keeps the call's state in registers: only the rare ways out of it get a copy. Two ranks, the
 * commonest case, have no loops and kernels that were looked up before. */
#include "comm/native/native.h"

#include "comm/collective/collective.h"
#include "comm/collective/shared/shared_algorithms.h"
#include "comm/record/call_record.h"
#include "comm/shared/doorbell.h"
#include "comm/shared/pause.h"

#include <string.h>

enum {
    SPINS = 200,       /* a moment */
    EAGER_SPINS = 8,   /* the first of them: no pause yet, which may last as long as a message takes */
    LOOKED = 32 << 10, /* bytes up to which a call is too short for a look at the clock when it ends */
    MOST_COUNT_BITS = 40,
    MOST_RANKS = 16
};

static const uint8_t size_of[] = {[TT_F32] = 4, [TT_F64] = 8,  [TT_I32] = 4, [TT_I64] = 8, [TT_U8] = 1,
                                  [TT_F16] = 2, [TT_BF16] = 2, [TT_I8] = 1,  [TT_I16] = 2, [TT_BOOL] = 1};

/* The commonest reductions; whatever else is checked and told by the ordinary way. */
static bool is_plain_reduction(tt_dtype dtype, tt_reduce_op op) {
    bool is_float = dtype == TT_F32 || dtype == TT_F64;
    return (unsigned)dtype <= TT_BOOL && (op == TT_SUM || op == TT_MIN || op == TT_MAX || (op == TT_AVG && is_float));
}

/* A call that lies between its publication and its end. */
typedef struct fast_call {
    tt_group *group;
    tt__native *native;
    const tt_all_reduce_args *args;
    tt__area *own, *other; /* this rank's part of the group; of two ranks the other's */
    size_t bytes;
    uint64_t word;
    uint32_t seq, number; /* of the call in the group, and of its record */
    bool in_place;
    tt__record *record;
} fast_call;

static inline bool is_pair(const fast_call *c) { return c->group->size == 2; }

static inline void publish(fast_call *c) {
    tt_group *group = c->group;
    c->seq = ++c->native->seq;
    tt__slot *slot = &c->own->slots[c->seq & 1];
    if (c->in_place)
        slot->offset = (uint64_t)((const unsigned char *)c->args->buf - c->native->bases[group->rank]);
    else
        memcpy(tt__slot_payload(slot, c->bytes), c->args->buf, c->bytes);
    c->word |= c->seq;
    tt__slot_publish(slot, c->word);
}

/* Whoever finds the words different before this is done looks again: tt__call_text(). */
static inline void record_call(fast_call *c) {
    const tt_all_reduce_args *args = c->args;
    atomic_store_explicit(&c->native->user, tt__this_thread(), memory_order_relaxed); /* for watch/deadlock.c */
    c->record = tt__record_begin_call(c->group, args->file, args->line, c->seq,
                                      &(tt__record_kind){.op = TT_OP_ALL_REDUCE,
                                                         .dtype = args->dtype,
                                                         .reduce_op = args->op,
                                                         .flags = c->in_place ? TT__RECORD_SYMMETRIC : 0,
                                                         .count = args->count});
    c->number = atomic_load_explicit(&c->record->number, memory_order_relaxed);
    c->own->slots[c->seq & 1].record = c->number;
    tt__record_ready(c->record, TT__CALL_BEGUN);
}

/* ---- waiting for a moment */

static inline bool wait_more(int *spins) {
    if (++*spins > SPINS)
        return false;
    if (*spins > EAGER_SPINS)
        tt__pause_cpu();
    return true;
}

/* A rank has come with the same call and the same kind of buffer. */
static inline bool agrees(const tt__slot *slot, uint64_t mine, int *spins) {
    uint64_t word;
    while ((word = tt__word_in(slot)) != mine)
        if ((uint32_t)word == (uint32_t)mine || !wait_more(spins))
            return false;
    return true;
}

static inline bool finishes(const tt__area *area, uint32_t step, int *spins) {
    while (!tt__has_finished(area, step))
        if (!wait_more(spins))
            return false;
    return true;
}

static bool many_agree(const tt_group *group, uint64_t word) {
    int spins = 0;
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && !agrees(&group->native->areas[r]->slots[word & 1], word, &spins))
            return false;
    return true;
}

static bool many_have_finished(const tt_group *group, uint32_t step) {
    int spins = 0;
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && !finishes(group->native->areas[r], step, &spins))
            return false;
    return true;
}

static inline bool all_agree(const fast_call *c) {
    int spins = 0;
    return is_pair(c) ? agrees(&c->other->slots[c->seq & 1], c->word, &spins) : many_agree(c->group, c->word);
}

static inline bool all_have_finished(const fast_call *c, uint32_t step) {
    int spins = 0;
    return is_pair(c) ? finishes(c->other, step, &spins) : many_have_finished(c->group, step);
}

static inline bool sleeps(const tt__area *area) { return atomic_load_explicit(&area->waits_for, memory_order_relaxed); }

static bool one_of_many_sleeps(const tt_group *group) {
    for (int r = 0; r < group->size; r++)
        if (sleeps(group->native->areas[r]))
            return true;
    return false;
}

/* Sleepers have announced it long ago (wait.c), so what was just published and this look need no fence between them. */
static inline void wake_sleepers(const fast_call *c) {
    if (__builtin_expect(is_pair(c) ? sleeps(c->other) : one_of_many_sleeps(c->group), 0))
        tt__wake_all(c->group);
}

/* ---- reducing */

static bool fast_is_half(tt_dtype dtype) { return dtype == TT_F16 || dtype == TT_BF16; }

/* The kernels for two ranks. A group mostly makes the same kind of calls. */
static inline const tt__reduce_pair *pair_of(const fast_call *c) {
    uint32_t kind = 1 + ((uint32_t)c->args->dtype << 8 | (uint32_t)c->args->op);
    if (c->native->pair_kind != kind) {
        c->native->pair = tt__reduce_pair_find(c->args->dtype, c->args->op);
        c->native->pair_kind = kind;
    }
    return &c->native->pair;
}

static void fast_reduce_many(const fast_call *c, tt__slice slice) {
    void *buffers[MOST_RANKS];
    const tt_group *group = c->group;
    for (int r = 0; r < group->size; r++)
        buffers[r] = c->in_place ? c->native->bases[r] + tt__slot_of(group, r, c->seq)->offset +
                                       slice.at * size_of[c->args->dtype]
                     : c->bytes <= TT__NEAR_MAX ? (void *)tt__slot_of(group, r, c->seq)->near
                                                : (void *)tt__slot_of(group, r, c->seq)->far;
    tt__reduce_tree(c->in_place ? buffers : (void *[]){c->args->buf}, c->in_place ? group->size : 1,
                    (const void *const *)buffers, group->size, slice.n, c->args->dtype, c->args->op);
}

static inline void reduce_payloads(const fast_call *c) {
    if (!is_pair(c) || fast_is_half(c->args->dtype)) {
        fast_call copy = *c;
        fast_reduce_many(&copy, (tt__slice){0, c->args->count});
        return;
    }
    const tt__slot *slot = &c->other->slots[c->seq & 1];
    const void *theirs = c->bytes <= TT__NEAR_MAX ? slot->near : slot->far;
    void *mine = c->args->buf;
    bool first = c->group->rank == 0;
    pair_of(c)->one(mine, first ? mine : theirs, first ? theirs : mine, c->args->count, 0.5, 0.5);
}

static inline void fast_reduce_slice(const fast_call *c) {
    const tt_group *group = c->group;
    tt__slice slice = tt__slice_of(c->args->count, size_of[c->args->dtype], group->size, group->rank);
    if (!slice.n)
        return;
    if (!is_pair(c) || fast_is_half(c->args->dtype)) {
        fast_call copy = *c;
        fast_reduce_many(&copy, slice);
        return;
    }
    size_t at = slice.at * size_of[c->args->dtype];
    unsigned char *mine = (unsigned char *)c->args->buf + at;
    unsigned char *theirs = c->native->bases[!group->rank] + c->other->slots[c->seq & 1].offset + at;
    unsigned char *first = group->rank ? theirs : mine, *second = group->rank ? mine : theirs;
    pair_of(c)->two(first, second, first, second, slice.n, 0.5, 0.5);
}

/* ---- the two ways */

/* As an ordinary work from here: all but the last wait is done if `algorithm` is given. */
static __attribute__((noinline, cold)) tt_status go_on(fast_call c, const tt__algorithm *algorithm, uint32_t step) {
    const tt_call call = tt__all_reduce_call(c.args);
    return tt__native_go_on(c.group, &call, c.record, c.seq, c.word, algorithm, step);
}

static inline tt_status run_inline(const fast_call *c) {
    if (!all_agree(c))
        return go_on(*c, NULL, 0);
    reduce_payloads(c);
    tt__record_done(c->record, c->number, TT__CALL_DONE, false);
    return TT_OK;
}

static inline tt_status run_in_place(const fast_call *c) {
    if (!all_agree(c))
        return go_on(*c, NULL, 0);
    fast_reduce_slice(c);
    uint32_t step = ++c->native->step;
    tt__area_finish(c->own, step);
    wake_sleepers(c);
    if (!all_have_finished(c, step))
        return go_on(*c, &tt__all_reduce_symmetric, step);
    tt__record_done(c->record, c->number, TT__CALL_DONE, c->bytes > LOOKED);
    return TT_OK;
}

bool tt__all_reduce_fast(const tt_all_reduce_args *args, tt_status *status) {
    tt_group *group = args->group;
    if (group->size > MOST_RANKS || args->work || !args->count || !is_plain_reduction(args->dtype, args->op) ||
        args->count >> MOST_COUNT_BITS || !args->buf || ((uintptr_t)args->stream | (unsigned)args->device) ||
        tt__group_has_ended(group) || atomic_load_explicit(&group->alone, memory_order_relaxed) ||
        atomic_load_explicit(&group->works, memory_order_acquire))
        return false;
    fast_call c = {.group = group, .native = group->native, .args = args, .bytes = args->count * size_of[args->dtype]};
    c.own = c.native->areas[group->rank];
    c.other = c.native->areas[group->rank ? 0 : group->size - 1];
    c.word = tt__signature_bits(tt__signature_kind(TT_OP_ALL_REDUCE, args->dtype, args->op, 0), args->count);
    if (!tt__rides(group, c.bytes) && tt__in_heap(c.native->world, args->buf, c.bytes)) {
        c.in_place = true;
        c.word |= TT__SYMMETRIC_BIT;
    } else if (c.bytes > TT__INLINE_MAX) {
        return false;
    }
    publish(&c);
    wake_sleepers(&c);
    record_call(&c);
    *status = c.in_place ? run_in_place(&c) : run_inline(&c);
    return true;
}
