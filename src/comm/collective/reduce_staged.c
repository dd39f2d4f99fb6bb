/* Reduction of plain buffers through staging memory, in pieces of TT__STAGE_BYTES.
 *
 * For each piece c every rank
 *   A(c)  copies its elements into its own "in" area;
 *   B(c)  when all have done A(c), reduces its slice of the piece over all "in" areas into its "out" area;
 *   C(c)  when all have done B(c), copies the other ranks' slices from their "out" areas to where they belong.
 * Work on neighbouring pieces overlaps: A(c+1) B(c) C(c-1) are done between one wait and the next. Steps are numbered
 * A(0) = 1, A(c+1) = 2c+2, B(c) = 2c+3. Three areas of each kind are enough: A(c+3) overwrites what B(c) of all ranks has read,
 * which C(c) waited for; B(c+3) waits for A(c+3), which a rank does after its C(c).
 * Per rank of N, with n bytes: n copied in, n read from "in" areas, n copied out, 2 synchronisations a piece. */
#include "comm/collective/collective.h"
#include "comm/reduce_tree.h"

#include <string.h>

typedef struct staged {
    size_t per_piece, pieces; /* elements of a piece; number of pieces */
    size_t c;                 /* the piece whose turn it is */
    uint32_t base;            /* step before the first */
} staged;

static size_t piece_count(const tt_work *work, const staged *s, size_t c) {
    size_t left = work->call.count - c * s->per_piece;
    return left < s->per_piece ? left : s->per_piece;
}

static unsigned char *piece_of_buf(const tt_work *work, const staged *s, size_t c) {
    return (unsigned char *)work->call.recv + c * s->per_piece * tt_dtype_size(work->call.dtype);
}

static uint32_t step_a(const staged *s, size_t c) { return s->base + (c ? 2 * (uint32_t)c : 1); }
static uint32_t step_b(const staged *s, size_t c) { return s->base + 2 * (uint32_t)c + 3; }

static void copy_in(tt_work *work, const staged *s, size_t c) {
    tt_group *group = work->group;
    if (c < s->pieces)
        memcpy(tt__stage_in(group, group->rank, c), piece_of_buf(work, s, c),
               piece_count(work, s, c) * tt_dtype_size(work->call.dtype));
    tt__finish_step(group, step_a(s, c));
}

static void reduce_slice(tt_work *work, const staged *s, size_t c) {
    const void *src[TT__MAX_WORLD];
    double factors[TT__MAX_WORLD];
    tt_group *group = work->group;
    const tt_call *call = &work->call;
    tt__slice slice = tt__slice_of(piece_count(work, s, c), call->dtype, group->size, group->rank);
    for (int r = 0; r < group->size; r++) {
        src[r] = tt__stage_in(group, r, c) + slice.at * tt_dtype_size(call->dtype);
        factors[r] = tt__factor(group, r, work->seq);
    }
    if (slice.n)
        tt__reduce_tree_scaled(&(void *){tt__stage_out(group, group->rank, c)}, 1, src, factors, group->size, slice.n,
                               call->dtype, call->reduce_op);
    tt__finish_step(group, step_b(s, c));
}

static void copy_out(tt_work *work, const staged *s, size_t c) {
    const tt_group *group = work->group;
    size_t n = piece_count(work, s, c), size = tt_dtype_size(work->call.dtype);
    if (work->call.op == TT_OP_REDUCE && work->call.root != group->rank)
        return;
    for (int r = 0; r < group->size; r++) {
        tt__slice slice = tt__slice_of(n, work->call.dtype, group->size, r);
        if (slice.n)
            memcpy(piece_of_buf(work, s, c) + slice.at * size, tt__stage_out(group, r, c), slice.n * size);
    }
}

enum { BEGIN, REDUCE, COPY_OUT, END };

static tt__next begin(tt_work *work, staged *s) {
    s->per_piece = TT__STAGE_BYTES / tt_dtype_size(work->call.dtype);
    s->pieces = (work->call.count + s->per_piece - 1) / s->per_piece;
    s->c = 0;
    s->base = tt__plan_steps(work->group, 2 * (uint32_t)s->pieces + 1);
    copy_in(work, s, 0);
    copy_in(work, s, 1);
    work->stage = REDUCE;
    return tt__work_wait_steps(work, step_a(s, 0));
}

/* C(c-1), then A(c+2) and on to the next piece. */
static tt__next go_on(tt_work *work, staged *s) {
    if (s->c)
        copy_out(work, s, s->c - 1);
    if (++s->c == s->pieces) {
        work->stage = END;
        return tt__work_wait_steps(work, step_b(s, s->c - 1));
    }
    copy_in(work, s, s->c + 1);
    work->stage = REDUCE;
    return tt__work_wait_steps(work, step_a(s, s->c));
}

static tt__next next(tt_work *work) {
    staged *s = TT__STATE(staged, work);
    switch (work->stage) {
    case BEGIN:
        return begin(work, s);
    case REDUCE:
        reduce_slice(work, s, s->c);
        if (!s->c)
            return go_on(work, s);
        work->stage = COPY_OUT;
        return tt__work_wait_steps(work, step_b(s, s->c - 1));
    case COPY_OUT:
        return go_on(work, s);
    default:
        copy_out(work, s, s->pieces - 1);
        return TT__NEXT_DONE;
    }
}

const tt__algorithm tt__all_reduce_staged = {.name = "staged", .op = TT_OP_ALL_REDUCE, .shared = true, .next = next};
const tt__algorithm tt__reduce_staged = {.name = "staged", .op = TT_OP_REDUCE, .shared = true, .next = next};
