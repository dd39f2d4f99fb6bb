/* all_reduce without a work: one function publishes, reduces and ends a synchronous call on a group that shares memory,
 * has no works, and whose ranks have a CPU each. It is made of the same inline pieces (shared/arrival.h, recorder.h)
 * and reductions (shared_algorithms.h) as the driver's way, so peers see no difference. If it has to wait for longer
 * than a moment, or finds that ranks differ, the call goes on from there as an ordinary work.
 *
 * Every small all_reduce pays for what is done here. So the clock is read for the record alone, nothing is locked or
 * fenced, and the record is written while the peers' words are on their way. The compiler makes one function of it,
 * which keeps the call in registers: only the rare exits get a copy. What the calls from one line of the program have
 * in common is computed at the first of them. */
#include "comm/native/native.h"

#include "base/dtype.h"
#include "comm/collective/shared/shared_algorithms.h"
#include "comm/group.h"
#include "comm/record/call_record.h"
#include "comm/shared/arrival.h"
#include "comm/shared/doorbell.h"

enum {
    LOOKS = 200,           /* looks at peers that make a moment */
    CLOCK_BYTES = 32 << 10 /* calls of up to this size are too short to read the clock at their end */
};

static const uint64_t MOST_COUNT = UINT64_C(1) << 40;

/* Is this one of the commonest reductions? The others take the ordinary way. */
static bool is_plain_reduction(tt_dtype dtype, tt_reduce_op op) {
    bool is_float = dtype == TT_F32 || dtype == TT_F64;
    return op == TT_SUM || op == TT_MIN || op == TT_MAX || (op == TT_AVG && is_float);
}

/* A call between its publication and its end. */
typedef struct fast_call {
    tt_group *group;
    tt__area *own, *other; /* other: in groups of two ranks, so that a look at it is one load; else NULL */
    const tt_all_reduce_args *args;
    const tt__fast_site *site;
    size_t bytes;
    uint64_t word;
    uint32_t number; /* of its record */
    tt__record_slot *record;
} fast_call;

/* ---- what is known of a line's calls */

/* One line in a loop may reduce tensors of several sizes. */
static inline tt__fast_site *site_of(tt__native *native, const tt_all_reduce_args *args) {
    uint64_t count = (uint64_t)args->count;
    return &native->fast.sites[((unsigned)args->line + (count ^ count >> 8)) % TT__FAST_SITES];
}

static inline bool is_known(const tt__fast_site *site, const tt_all_reduce_args *args, bool in_place) {
    return site->count == args->count && site->file == args->file && site->line == args->line &&
           site->dtype == args->dtype && site->op == args->op && site->in_place == in_place;
}

/* Fill in the site of a call's line. False: the call takes the ordinary way, which checks it. Calls that the library
 * makes for itself take that, too: they have no line. */
static __attribute__((noinline, cold)) bool learn(const tt_all_reduce_args *args, bool in_place) {
    tt_group *group = args->group;
    if (!tt__dtype_size(args->dtype) || !is_plain_reduction(args->dtype, args->op) || args->count <= 0 ||
        (uint64_t)args->count >= MOST_COUNT || (!args->line && args->file))
        return false;
    tt__call_record call = {.group = group->id,
                            .op = TT_OP_ALL_REDUCE,
                            .dtype = (uint8_t)args->dtype,
                            .reduce_op = (uint8_t)args->op,
                            .flags = in_place ? TT__RECORD_SYMMETRIC : 0,
                            .count = (uint64_t)args->count};
    *site_of(group->native, args) = (tt__fast_site){
        .file = args->file,
        .line = args->line,
        .dtype = args->dtype,
        .op = args->op,
        .in_place = in_place,
        .count = args->count,
        .signature = tt__signature_bits(tt__signature_kind(TT_OP_ALL_REDUCE, args->dtype, args->op, 0), args->count),
        .form = tt__record_form_of(group->native->fast.recorder, args->file, args->line, call),
        .pair = tt__is_half(args->dtype) ? (tt__reduce_pair){0} : tt__reduce_pair_find(args->dtype, args->op)};
    return true;
}

/* A peer that finds the words different before the record is written looks again: tt__call_text(). */
static inline void record_call(fast_call *c) {
    tt__native *native = c->group->native;
    uint32_t seq = (uint32_t)c->word;
    atomic_store_explicit(&native->user, tt__this_thread(), memory_order_relaxed); /* for watch/deadlock.c */
    c->record = tt__record_begin_form(native->fast.recorder, &c->site->form, seq, tt__newest_number(c->group, false),
                                      &c->number);
    c->own->slots[seq & 1].record = c->number;
    tt__record_ready(c->record, TT__CALL_BEGUN);
}

/* ---- waiting for a moment */

/* Have all ranks come within a moment, with the same call and kind of buffer? */
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

static inline bool is_pair(const fast_call *c) { return c->other && c->site->pair.one; }

static inline void reduce_payloads(const fast_call *c) {
    const tt_group *group = c->group;
    if (!is_pair(c)) {
        const tt_call call = tt__all_reduce_call(c->args);
        tt__reduce_arrived(group, (uint32_t)c->word, &call, call.recv);
        return;
    }
    void *mine = c->args->buf, *theirs = tt__payload_in(c->other, (uint32_t)c->word, c->bytes);
    void *first = group->rank ? theirs : mine, *second = group->rank ? mine : theirs;
    c->site->pair.one(mine, first, second, c->args->count, 0.5, 0.5);
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
        c->site->pair.two(first, second, first, second, slice.n, 0.5, 0.5);
}

/* ---- the two ways */

/* Go on as an ordinary work. If `algorithm` is given, only the wait for `step` is left. */
static __attribute__((noinline, cold)) tt_status go_on(fast_call c, const tt__algorithm *algorithm, uint32_t step) {
    const tt_call call = tt__all_reduce_call(c.args);
    return tt__native_go_on(c.group, &call, c.record, c.word, algorithm, step);
}

static inline tt_status finish_inline(const fast_call *c) {
    tt__claim_slot(&c->own->slots[(c->word + 1) & 1], c->bytes);
    reduce_payloads(c);
    tt__record_done(c->record, c->number, TT__CALL_DONE, false);
    return TT_OK;
}

static inline tt_status finish_in_place(const fast_call *c) {
    uint32_t step = ++c->group->native->step;
    tt__claim_slot(&c->own->slots[(c->word + 1) & 1], 0);
    reduce_own_slice(c);
    tt__area_finish(c->own, step);
    wake_sleepers(c);
    if (!all_finish(c, step))
        return go_on(*c, &tt__all_reduce_symmetric, step);
    tt__record_done(c->record, c->number, TT__CALL_DONE, c->bytes > CLOCK_BYTES);
    return TT_OK;
}

static bool all_reduce_fast(const tt_all_reduce_args *args, tt_status *status) {
    tt_group *group = args->group;
    tt__native *native = group->native;
    fast_call c = {.group = group, .args = args, .bytes = (size_t)args->count * tt__dtype_size(args->dtype)};
    if (args->work || !args->buf || ((uintptr_t)args->stream | (unsigned)args->device) || tt__group_has_ended(group) ||
        atomic_load_explicit(&group->alone, memory_order_relaxed) ||
        atomic_load_explicit(&group->works, memory_order_acquire))
        return false;
    bool in_place = !tt__rides(group, c.bytes) && tt__in_heap(native->world, args->buf, c.bytes);
    c.site = site_of(native, args);
    bool inline_size = c.bytes - 1 < TT__INLINE_MAX; /* no bytes: like an unknown site */
    if ((!in_place && !inline_size) || (!is_known(c.site, args, in_place) && !learn(args, in_place)))
        return false;
    c.own = native->fast.own;
    c.other = native->fast.other;
    c.word = tt__arrive(group, c.site->signature, args->buf, in_place ? 0 : c.bytes, in_place ? args->buf : NULL);
    wake_sleepers(&c);
    record_call(&c);
    if (!all_agree(&c))
        *status = go_on(c, NULL, 0);
    else
        *status = in_place ? finish_in_place(&c) : finish_inline(&c);
    return true;
}

void tt__all_reduce_fast_begin(tt_group *group) {
    tt__native *native = group->native;
    group->all_reduce_fast = all_reduce_fast;
    native->fast = (tt__fast){.recorder = &tt__world_control(native->world)->recorder,
                              .own = native->areas[group->rank],
                              .other = group->size == 2 ? native->areas[!group->rank] : NULL};
}
