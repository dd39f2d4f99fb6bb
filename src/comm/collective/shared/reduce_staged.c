/* Reduction of plain buffers through staging memory, in pieces of TT__STAGE_BYTES.
 *
 * For each piece c every rank
 *   A(c)  copies the other ranks' slices of its elements into its staging memory;
 *   B(c)  when all have done A(c), reduces its own slice over its buffer and the others' staging memory, into its
 *         buffer and into theirs, where the elements came from;
 *   C(c)  when all have done B(c), copies the other ranks' slices from its staging memory to where they belong.
 * So a cache line of staging memory goes to the rank that reduces it and comes back, and its owner may write it again
 * without asking: with results in memory of their own each line would change hands twice as often.
 *
 * Work on neighbouring pieces overlaps: A(c+2) B(c) C(c-1) are done between one wait and the next. Steps are numbered
 * A(0) = 1, A(c+1) = 2c+2, B(c) = 2c+3. Three pieces are enough: A(c+3) overwrites what C(c) has read. Per rank of N,
 * with n bytes: n (N-1)/N copied in, n read, n written, n (N-1)/N copied out, 2 synchronisations a piece.
 *
 * Reading peers' memory by process_vm_readv() instead is slower: it moves 4 to 14 GB/s where these copies, in and out
 * together, move 20 to 40. */
#include "comm/collective/shared/shared_algorithms.h"

typedef struct staged {
    size_t per_piece, pieces; /* elements of a piece; number of pieces */
    size_t c;                 /* the piece whose turn it is */
    uint32_t base;            /* step before the first */
} staged;

static uint32_t step_a(const staged *s, size_t c) { return s->base + (c ? 2 * (uint32_t)c : 1); }
static uint32_t step_b(const staged *s, size_t c) { return s->base + 2 * (uint32_t)c + 3; }

/* Return rank r's slice of piece c: `at` counts from the beginning of the piece. */
static tt__slice staged_slice_of(const tt_work *work, const staged *s, size_t c, int r) {
    size_t left = work->call.count - c * s->per_piece;
    return tt__slice_of(left < s->per_piece ? left : s->per_piece, tt_dtype_size(work->call.dtype), work->group->size,
                        r);
}

/* Return where a slice lies in this rank's memory; NULL: not in one piece. */
static void *own_elements(const tt_work *work, const staged *s, size_t c, tt__slice slice) {
    return tt__elements_at(&work->call, c * s->per_piece + slice.at, slice.n);
}

static bool staged_wants_result(const tt_work *work, int r) {
    return work->call.op != TT_OP_REDUCE || work->call.root == r;
}

static void staged_copy_in(tt_work *work, const staged *s, size_t c) {
    tt_group *group = work->group;
    size_t size = tt_dtype_size(work->call.dtype);
    for (int r = 0; r < group->size && c < s->pieces; r++) {
        tt__slice slice = staged_slice_of(work, s, c, r);
        if (slice.n && (r != group->rank || !own_elements(work, s, c, slice)))
            tt__elements_gather(&work->call, c * s->per_piece + slice.at, slice.n,
                                tt__stage(group, group->rank, c) + slice.at * size);
    }
    tt__finish_step(group, step_a(s, c));
}

static void staged_reduce_slice(tt_work *work, const staged *s, size_t c) {
    tt_group *group = work->group;
    const tt_call *call = &work->call;
    void *src[TT__MAX_HOST_RANKS], *dst[TT__MAX_HOST_RANKS];
    double factors[TT__MAX_HOST_RANKS];
    int dsts = 0;
    tt__slice slice = staged_slice_of(work, s, c, group->rank);
    void *own = own_elements(work, s, c, slice);
    for (int r = 0; r < group->size; r++) {
        src[r] = r == group->rank && own ? own : tt__stage(group, r, c) + slice.at * tt_dtype_size(call->dtype);
        factors[r] = tt__factor(group, r, work->seq);
        if (staged_wants_result(work, r))
            dst[dsts++] = src[r];
    }
    if (slice.n)
        tt__reduce_tree_scaled(dst, dsts, (const void *const *)src, factors, group->size, slice.n, call->dtype,
                               call->reduce_op);
    tt__finish_step(group, step_b(s, c));
}

static void staged_copy_out(tt_work *work, const staged *s, size_t c) {
    const tt_group *group = work->group;
    size_t size = tt_dtype_size(work->call.dtype);
    for (int r = 0; r < group->size && staged_wants_result(work, group->rank); r++) {
        tt__slice slice = staged_slice_of(work, s, c, r);
        if (slice.n && (r != group->rank || !own_elements(work, s, c, slice)))
            tt__elements_scatter(&work->call, c * s->per_piece + slice.at, slice.n,
                                 tt__stage(group, group->rank, c) + slice.at * size);
    }
}

enum { BEGIN, REDUCE, COPY_OUT, END };

static tt__next staged_begin(tt_work *work, staged *s) {
    s->per_piece = TT__STAGE_BYTES / tt_dtype_size(work->call.dtype);
    s->pieces = work->call.count ? (work->call.count + s->per_piece - 1) / s->per_piece : 1;
    s->c = 0;
    s->base = tt__plan_steps(work->group, 2 * (uint32_t)s->pieces + 1);
    staged_copy_in(work, s, 0);
    staged_copy_in(work, s, 1);
    work->stage = REDUCE;
    return tt__work_wait_steps(work, step_a(s, 0));
}

/* Do C(c-1), then A(c+2), and go on to the next piece. */
static tt__next reduce_go_on(tt_work *work, staged *s) {
    if (s->c)
        staged_copy_out(work, s, s->c - 1);
    if (++s->c == s->pieces) {
        work->stage = END;
        return tt__work_wait_steps(work, step_b(s, s->c - 1));
    }
    staged_copy_in(work, s, s->c + 1);
    work->stage = REDUCE;
    return tt__work_wait_steps(work, step_a(s, s->c));
}

static tt__next staged_next(tt_work *work) {
    staged *s = TT__STATE(staged, work);
    switch (work->stage) {
    case BEGIN:
        return staged_begin(work, s);
    case REDUCE:
        staged_reduce_slice(work, s, s->c);
        if (!s->c)
            return reduce_go_on(work, s);
        work->stage = COPY_OUT;
        return tt__work_wait_steps(work, step_b(s, s->c - 1));
    case COPY_OUT:
        return reduce_go_on(work, s);
    default:
        staged_copy_out(work, s, s->pieces - 1);
        return TT__NEXT_DONE;
    }
}

const tt__algorithm tt__all_reduce_staged = {
    .name = "staged", .op = TT_OP_ALL_REDUCE, .shared = true, .next = staged_next};
const tt__algorithm tt__reduce_staged = {.name = "staged", .op = TT_OP_REDUCE, .shared = true, .next = staged_next};
const tt__algorithm tt__coalesced_staged = {
    .name = "staged", .op = TT_OP_ALL_REDUCE_COALESCED, .shared = true, .next = staged_next};
