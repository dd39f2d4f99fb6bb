/* all_reduce without the machinery: a synchronous call on a group that shares memory, whose ranks have a CPU each and no works, is published, reduced
 * and done in one function. It does what reduce_inline.c (a few bytes) and reduce_symmetric.c do, word for word and step for step, so a peer
 * can't tell. Whenever something has to be waited for longer than a moment, or differs, the call goes on as an ordinary work from where it is.
 *
 * What costs time here costs every small all_reduce, so the rest is done while the peers' words are on their way: the call's record and the
 * slice. No clock is read but by the record, nothing is locked, and nothing is fenced. */
#include "comm/collective/collective.h"
#include "comm/reduce_tree.h"
#include "comm/signature.h"

#include <string.h>

enum { SPINS = 200, MOST_COUNT_BITS = 40, MOST_RANKS = 16 };

static const uint8_t size_of[] = {[TT_F32] = 4, [TT_F64] = 8,  [TT_I32] = 4, [TT_I64] = 8, [TT_U8] = 1,
                                  [TT_F16] = 2, [TT_BF16] = 2, [TT_I8] = 1,  [TT_I16] = 2, [TT_BOOL] = 1};

/* The commonest reductions; whatever else is checked and told by the ordinary way. */
static bool is_plain_reduction(tt_dtype dtype, tt_reduce_op op) {
    bool is_float = dtype == TT_F32 || dtype == TT_F64;
    return (unsigned)dtype <= TT_BOOL && (op == TT_SUM || op == TT_MIN || op == TT_MAX || (op == TT_AVG && is_float));
}

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A call that lies between its publication and its end. */
typedef struct at_once {
    tt_group *group;
    const tt_all_reduce_args *args;
    size_t bytes;
    uint64_t word;
    uint32_t seq, number; /* of the call in the group, and of its record */
    bool in_place;
    tt__slice slice;      /* of this rank, if in place */
    tt__reduce_pair pair; /* of two ranks, if in place */
    tt__record *record;
} at_once;

static const tt__slot *slot_of(const at_once *c, int r) { return &c->group->areas[r]->slots[c->seq & 1]; }

static void publish(at_once *c) {
    tt_group *group = c->group;
    c->seq = ++group->seq;
    tt__slot *slot = &group->areas[group->rank]->slots[c->seq & 1];
    if (c->in_place)
        slot->offset = (uint64_t)((const unsigned char *)c->args->buf - group->bases[group->rank]);
    else if (c->bytes)
        memcpy(c->bytes <= TT__NEAR_MAX ? slot->near : slot->far, c->args->buf, c->bytes);
    c->word |= c->seq;
    atomic_store_explicit(&slot->word, c->word, memory_order_release);
}

/* Whoever finds the words different before this is done looks again: agree.c. */
static void record(at_once *c) {
    tt_group *group = c->group;
    atomic_store_explicit(&group->user, (uintptr_t)pthread_self(), memory_order_relaxed); /* for deadlock.c */
    tt__record *record = tt__record_begin(&tt__world_control(group->world)->recorder, c->args->file, c->args->line);
    c->number = atomic_load_explicit(&record->number, memory_order_relaxed);
    group->areas[group->rank]->slots[c->seq & 1].record = c->number;
    c->record = record;
    record->seq = c->seq;
    record->group = group->id;
    record->op = TT_OP_ALL_REDUCE;
    record->dtype = (uint8_t)c->args->dtype;
    record->reduce_op = (uint8_t)c->args->op;
    record->flags = c->in_place ? TT__RECORD_SYMMETRIC : 0;
    record->root = 0;
    record->count = c->args->count;
    record->tag = 0;
    record->algorithm = 0;
    tt__record_ready(record, TT__CALL_BEGUN);
}

/* Rank r has come with the same call and the same kind of buffer. */
static inline bool agrees(const at_once *c, int r, int *spins) {
    const _Atomic uint64_t *at = &slot_of(c, r)->word;
    for (;;) {
        uint64_t word = atomic_load_explicit(at, memory_order_acquire);
        if (word == c->word)
            return true;
        if ((uint32_t)word == c->seq || ++*spins > SPINS)
            return false;
        pause_cpu();
    }
}

static inline bool has_finished(const tt_group *group, int r, uint32_t step, int *spins) {
    const _Atomic uint32_t *at = &group->areas[r]->step;
    while ((int32_t)(atomic_load_explicit(at, memory_order_acquire) - step) < 0) {
        if (++*spins > SPINS)
            return false;
        pause_cpu();
    }
    return true;
}

/* All others, and for two ranks without a loop: a branch that is guessed wrong costs as much as all else that is done here. */
static bool all_agree(const at_once *c) {
    int spins = 0;
    if (c->group->size == 2)
        return agrees(c, !c->group->rank, &spins);
    for (int r = 0; r < c->group->size; r++)
        if (r != c->group->rank && !agrees(c, r, &spins))
            return false;
    return true;
}

static bool all_have_finished(const tt_group *group, uint32_t step) {
    int spins = 0;
    if (group->size == 2)
        return has_finished(group, !group->rank, step, &spins);
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && !has_finished(group, r, step, &spins))
            return false;
    return true;
}

static void reduce_payloads(const at_once *c) {
    const void *src[MOST_RANKS];
    for (int r = 0; r < c->group->size; r++)
        src[r] = c->bytes <= TT__NEAR_MAX ? slot_of(c, r)->near : slot_of(c, r)->far;
    tt__reduce_tree(&(void *){c->args->buf}, 1, src, c->group->size, c->args->count, c->args->dtype, c->args->op);
}

static bool is_half(tt_dtype dtype) { return dtype == TT_F16 || dtype == TT_BF16; }

/* All that is known of the reduction before the others have come. */
static void prepare(at_once *c) {
    const tt_group *group = c->group;
    c->slice = tt__slice_of(c->args->count, c->args->dtype, group->size, group->rank);
    if (group->size == 2 && !is_half(c->args->dtype))
        c->pair = tt__reduce_pair_find(c->args->dtype, c->args->op);
}

static void reduce_slice(const at_once *c) {
    void *buffers[MOST_RANKS];
    const tt_group *group = c->group;
    tt__slice slice = c->slice;
    if (!slice.n)
        return;
    for (int r = 0; r < group->size; r++)
        buffers[r] = group->bases[r] + slot_of(c, r)->offset + slice.at * size_of[c->args->dtype];
    if (c->pair.kernel) {
        tt__reduce_pair_run(c->pair, buffers[0], buffers[1], buffers[0], buffers[1], slice.n);
        return;
    }
    tt__reduce_tree(buffers, group->size, (const void *const *)buffers, group->size, slice.n, c->args->dtype,
                    c->args->op);
}

/* As an ordinary work from here: all but the last wait is done if `algorithm` is given. */
static tt_status go_on(const at_once *c, const tt__algorithm *algorithm, uint32_t step) {
    const tt_call call = tt__all_reduce_call(c->args);
    return tt__native_go_on(c->group, &call, c->record, c->seq, c->word, algorithm, step);
}

/* Sleepers have announced it long ago (wait.c), so what was just published and this look need no fence between them. */
static void wake_sleepers(tt_group *group) {
    for (int r = 0; r < group->size; r++)
        if (atomic_load_explicit(&group->areas[r]->waits_for, memory_order_relaxed)) {
            tt__wake_all(group);
            return;
        }
}

static tt_status run_inline(at_once *c) {
    if (!all_agree(c))
        return go_on(c, NULL, 0);
    reduce_payloads(c);
    tt__record_done(c->record, c->number, TT__CALL_DONE, false);
    return TT_OK;
}

static tt_status run_in_place(at_once *c) {
    tt_group *group = c->group;
    prepare(c);
    if (!all_agree(c))
        return go_on(c, NULL, 0);
    reduce_slice(c);
    uint32_t step = ++group->step;
    atomic_store_explicit(&group->areas[group->rank]->step, step, memory_order_release);
    wake_sleepers(group);
    if (!all_have_finished(group, step))
        return go_on(c, &tt__all_reduce_symmetric, step);
    tt__record_done(c->record, c->number, TT__CALL_DONE, c->bytes > TT__INLINE_MAX);
    return TT_OK;
}

bool tt__all_reduce_at_once(const tt_all_reduce_args *args, tt_status *status) {
    tt_group *group = args->group;
    if (!group || !group->at_once || group->size > MOST_RANKS || args->work || !args->count ||
        !is_plain_reduction(args->dtype, args->op) || args->count >> MOST_COUNT_BITS || !args->buf ||
        atomic_load_explicit(&group->ended, memory_order_relaxed) ||
        atomic_load_explicit(&group->works, memory_order_acquire))
        return false;
    at_once c = {.group = group, .args = args, .bytes = args->count * size_of[args->dtype]};
    c.word = tt__signature_bits(tt__signature_kind(TT_OP_ALL_REDUCE, args->dtype, args->op, 0), args->count);
    if (c.bytes > TT__NEAR_MAX && tt__in_heap(group->world, args->buf, c.bytes)) {
        c.in_place = true;
        c.word |= TT__SYMMETRIC_BIT;
    } else if (c.bytes > TT__INLINE_MAX) {
        return false;
    }
    publish(&c);
    wake_sleepers(group);
    record(&c);
    *status = c.in_place ? run_in_place(&c) : run_inline(&c);
    return true;
}
