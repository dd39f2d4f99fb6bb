/* all_reduce without a work: a synchronous call on a group that shares memory, whose ranks have a CPU each and no
 * works, is published, reduced and done in one function, made of the same inline pieces as the driver's way
 * (shared/arrival.h, shared/spin.h, call_record.h) and of the same reductions (shared_algorithms.h), so a peer can't
 * tell. When something has to be waited for longer than a moment, or differs, the call goes on as an ordinary work from
 * where it is.
 *
 * Every small all_reduce pays for what is done here. So the clock is read for the record alone, nothing is locked or
 * fenced, the record is written while the peers' words are on their way, and all is one function once it is compiled,
 * which keeps the call in registers: only the rare ways out of it get a copy. For two ranks, the commonest case, the
 * kernel was looked up before. */
#include "comm/native/native.h"

#include "base/dtype.h"
#include "comm/collective/collective.h"
#include "comm/collective/shared/shared_algorithms.h"
#include "comm/record/call_record.h"
#include "comm/shared/doorbell.h"
#include "comm/shared/spin.h"

enum {
    LOOKS = 200,           /* a moment */
    CLOCK_BYTES = 32 << 10 /* up to so many a call is too short for a look at the clock when it ends */
};

static const uint64_t MOST_COUNT = UINT64_C(1) << 40;

/* The commonest reductions; what else there is, is checked and told by the ordinary way, and so are calls that the
 * library makes for itself, which have no line. */
static bool is_plain_reduction(tt_dtype dtype, tt_reduce_op op) {
    bool is_float = dtype == TT_F32 || dtype == TT_F64;
    return op == TT_SUM || op == TT_MIN || op == TT_MAX || (op == TT_AVG && is_float);
}

/* A call between its publication and its end. */
typedef struct fast_call {
    tt_group *group;
    tt__area *other; /* of two ranks: the other's, so that a look at it is one load; else NULL */
    const tt_all_reduce_args *args;
    size_t bytes;
    uint64_t word;
    uint32_t number; /* of its record */
    tt__record_slot *record;
} fast_call;

/* Who finds the words different before this is done looks again: tt__call_text(). */
static inline void record_call(fast_call *c) {
    const tt_all_reduce_args *args = c->args;
    tt__native *native = c->group->native;
    uint32_t seq = (uint32_t)c->word;
    atomic_store_explicit(&native->user, tt__this_thread(), memory_order_relaxed); /* for watch/deadlock.c */
    c->record = tt__record_begin_call(c->group, args->file, args->line,
                                      (tt__record){.seq = seq,
                                                   .op = TT_OP_ALL_REDUCE,
                                                   .dtype = (uint8_t)args->dtype,
                                                   .reduce_op = (uint8_t)args->op,
                                                   .flags = c->word & TT__SYMMETRIC_BIT ? TT__RECORD_SYMMETRIC : 0,
                                                   .count = (uint64_t)args->count});
    c->number = atomic_load_explicit(&c->record->number, memory_order_relaxed);
    tt__slot_of(c->group, c->group->rank, seq)->record = c->number;
    tt__record_ready(c->record, TT__CALL_BEGUN);
}

/* ---- waiting for a moment */

/* All ranks come, with the same call and the same kind of buffer. */
static inline bool all_agree(const fast_call *c) {
    tt__wait arrival = {TT__ARRIVAL, (uint32_t)c->word, 0, c->group->size};
    if (c->other)
        return tt__spin_word(&c->other->slots[c->word & 1], c->word, LOOKS);
    return tt__spin(c->group, &arrival, LOOKS) && !tt__words_differ(c->group, c->word);
}

static inline bool all_finish(const fast_call *c, uint32_t step) {
    tt__wait finish = {TT__STEP, step, 0, c->group->size};
    return c->other ? tt__spin_step(c->other, step, LOOKS) : tt__spin(c->group, &finish, LOOKS);
}

static inline void wake_sleepers(const fast_call *c) {
    if (!c->other)
        tt__wake_announced(c->group);
    else if (tt__announces_sleep(c->other))
        tt__ring_announced(c->group);
}

/* ---- reducing */

static inline bool is_pair(const fast_call *c) { return c->other && !tt__is_half(c->args->dtype); }

/* Two ranks' kernel. A group mostly makes the same kind of calls. */
static inline const tt__reduce_pair *kernel_of(const fast_call *c) {
    tt__native *native = c->group->native;
    uint32_t kind = 1 + ((uint32_t)c->args->dtype << 8 | (uint32_t)c->args->op);
    if (native->pair_kind != kind) {
        native->pair = tt__reduce_pair_find(c->args->dtype, c->args->op);
        native->pair_kind = kind;
    }
    return &native->pair;
}

static inline void reduce_payloads(const fast_call *c) {
    const tt_group *group = c->group;
    if (!is_pair(c)) {
        const tt_call call = tt__all_reduce_call(c->args);
        tt__reduce_arrived(group, (uint32_t)c->word, &call, call.recv);
        return;
    }
    void *mine = c->args->buf, *theirs = tt__slot_payload(&c->other->slots[c->word & 1], c->bytes);
    void *first = group->rank ? theirs : mine, *second = group->rank ? mine : theirs;
    kernel_of(c)->one(mine, first, second, c->args->count, 0.5, 0.5);
}

static inline void reduce_own_slice(const fast_call *c) {
    const tt_group *group = c->group;
    if (!is_pair(c)) {
        const tt_call call = tt__all_reduce_call(c->args);
        tt__reduce_own_slice(group, (uint32_t)c->word, &call);
        return;
    }
    size_t size = tt__dtype_size(c->args->dtype);
    tt__slice slice = tt__slice_of(c->args->count, size, 2, group->rank);
    unsigned char *mine = c->args->buf, *theirs = tt__symmetric(group, !group->rank, (uint32_t)c->word);
    unsigned char *first = (group->rank ? theirs : mine) + slice.at * size;
    unsigned char *second = (group->rank ? mine : theirs) + slice.at * size;
    if (slice.n)
        kernel_of(c)->two(first, second, first, second, slice.n, 0.5, 0.5);
}

/* ---- the two ways */

/* As an ordinary work from here on: all but the wait for `step` is done if `algorithm` is given. */
static __attribute__((noinline, cold)) tt_status go_on(fast_call c, const tt__algorithm *algorithm, uint32_t step) {
    const tt_call call = tt__all_reduce_call(c.args);
    return tt__native_go_on(c.group, &call, c.record, c.word, algorithm, step);
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
    uint32_t step = ++c->group->native->step;
    reduce_own_slice(c);
    tt__area_finish(c->group->native->areas[c->group->rank], step);
    wake_sleepers(c);
    if (!all_finish(c, step))
        return go_on(*c, &tt__all_reduce_symmetric, step);
    tt__record_done(c->record, c->number, TT__CALL_DONE, c->bytes > CLOCK_BYTES);
    return TT_OK;
}

bool tt__all_reduce_fast(const tt_all_reduce_args *args, tt_status *status) {
    tt_group *group = args->group;
    fast_call c = {.group = group, .args = args, .bytes = args->count * tt__dtype_size(args->dtype)};
    if (args->work || (!args->line && args->file) || !args->buf || !c.bytes || (uint64_t)args->count >= MOST_COUNT ||
        !is_plain_reduction(args->dtype, args->op) || ((uintptr_t)args->stream | (unsigned)args->device) ||
        tt__group_has_ended(group) || atomic_load_explicit(&group->alone, memory_order_relaxed) ||
        atomic_load_explicit(&group->works, memory_order_acquire))
        return false;
    uint64_t signature =
        tt__signature_bits(tt__signature_kind(TT_OP_ALL_REDUCE, args->dtype, args->op, 0), args->count);
    bool in_place = !tt__rides(group, c.bytes) && tt__in_heap(group->native->world, args->buf, c.bytes);
    if (!in_place && c.bytes > TT__INLINE_MAX)
        return false;
    c.word = tt__arrive(group, signature, args->buf, in_place ? 0 : c.bytes, in_place ? args->buf : NULL);
    if (group->size == 2)
        c.other = group->native->areas[!group->rank];
    wake_sleepers(&c);
    record_call(&c);
    *status = in_place ? run_in_place(&c) : run_inline(&c);
    return true;
}
