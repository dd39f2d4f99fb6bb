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
#include "base/error.h"
#include "comm/collective/collective.h"
#include "comm/reduce_tree.h"

#include <string.h>

typedef struct staged {
    tt_group *group;
    const tt__reduction *what;
    size_t size, per_piece, pieces; /* element bytes; elements of a piece; number of pieces */
    uint32_t base;                  /* step before the first */
} staged;

static size_t piece_count(const staged *s, size_t c) {
    size_t left = s->what->count - c * s->per_piece;
    return left < s->per_piece ? left : s->per_piece;
}

static unsigned char *piece_of_buf(const staged *s, size_t c) {
    return (unsigned char *)s->what->buf + c * s->per_piece * s->size;
}

static bool wants_result(const staged *s) { return s->what->root == TT__ALL || s->what->root == s->group->rank; }

static void copy_in(const staged *s, size_t c) {
    if (c < s->pieces)
        memcpy(tt__stage_in(s->group, s->group->rank, c), piece_of_buf(s, c), piece_count(s, c) * s->size);
    tt__finish_step(s->group, s->base + (c ? 2 * (uint32_t)c : 1));
}

static void reduce_slice(const staged *s, size_t c) {
    const void *src[TT__MAX_WORLD];
    tt_group *group = s->group;
    tt__slice slice = tt__slice_of(piece_count(s, c), s->what->dtype, group->world, group->rank);
    for (int r = 0; r < group->world; r++)
        src[r] = tt__stage_in(group, r, c) + slice.at * s->size;
    if (slice.n)
        tt__reduce_tree(&(void *){tt__stage_out(group, group->rank, c)}, 1, src, group->world, slice.n, s->what->dtype,
                        s->what->op);
    tt__finish_step(group, s->base + 2 * (uint32_t)c + 3);
}

static void copy_out(const staged *s, size_t c) {
    size_t n = piece_count(s, c);
    for (int r = 0; r < s->group->world && wants_result(s); r++) {
        tt__slice slice = tt__slice_of(n, s->what->dtype, s->group->world, r);
        if (slice.n)
            memcpy(piece_of_buf(s, c) + slice.at * s->size, tt__stage_out(s->group, r, c), slice.n * s->size);
    }
}

tt_status tt__reduce_staged(tt_group *group, const tt__reduction *reduction) {
    staged s = {.group = group, .what = reduction, .size = tt_dtype_size(reduction->dtype)};
    s.per_piece = TT__STAGE_BYTES / s.size;
    s.pieces = (reduction->count + s.per_piece - 1) / s.per_piece;
    s.base = tt__plan_steps(group, 2 * (uint32_t)s.pieces + 1);
    copy_in(&s, 0);
    for (size_t c = 0; c < s.pieces; c++) {
        copy_in(&s, c + 1);
        TT__TRY(tt__wait_steps(group, s.base + (c ? 2 * (uint32_t)c : 1)));
        reduce_slice(&s, c);
        if (c) {
            TT__TRY(tt__wait_steps(group, s.base + 2 * (uint32_t)c + 1));
            copy_out(&s, c - 1);
        }
    }
    TT__TRY(tt__wait_steps(group, s.base + 2 * (uint32_t)s.pieces + 1));
    copy_out(&s, s.pieces - 1);
    return TT_OK;
}
