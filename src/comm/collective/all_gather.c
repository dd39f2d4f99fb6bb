/* all_gather: every rank's elements to all. On shared memory
 *
 *   up to TT__INLINE_MAX bytes a rank  with the arrival words
 *   all `send` symmetric               every rank copies from the others' buffers; all wait until all have
 *   else                               piece by piece through everybody's staging memory */
#include "comm/collective/collective.h"

#include <string.h>

tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_gather_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "all_gather", a->send, a->count, a->dtype, TT_SUM, 0));
    TT__TRY(tt__check_call(a->group, "all_gather", a->recv, a->count, a->dtype, TT_SUM, 0));
    const tt_call call = {.op = TT_OP_ALL_GATHER,
                          .dtype = a->dtype,
                          .count = a->count,
                          .send = a->send,
                          .recv = a->recv,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}

static size_t bytes_of(const tt_work *work) { return work->call.count * tt_dtype_size(work->call.dtype); }

/* Put n bytes of rank r, from byte `at` of its share on. The own share may lie there already. */
static void place(const tt_work *work, int r, size_t at, const void *from, size_t n) {
    unsigned char *to = (unsigned char *)work->call.recv + (size_t)r * bytes_of(work) + at;
    if (to != from && n)
        memcpy(to, from, n);
}

static tt__next gather_inline(tt_work *work) {
    const tt_group *group = work->group;
    size_t bytes = bytes_of(work);
    for (int r = 0; r < group->size; r++)
        place(work, r, 0, r == group->rank ? work->call.send : tt__payload(group, r, work->seq, bytes), bytes);
    return TT__NEXT_DONE;
}

static tt__next gather_symmetric(tt_work *work) {
    tt_group *group = work->group;
    if (work->stage++)
        return TT__NEXT_DONE;
    uint32_t step = tt__plan_steps(group, 1) + 1;
    for (int i = 0; i < group->size; i++) { /* start with the next rank, so that not all read the same one */
        int r = (group->rank + 1 + i) % group->size;
        place(work, r, 0, r == group->rank ? work->call.send : tt__symmetric(group, r, work->seq), bytes_of(work));
    }
    tt__finish_step(group, step);
    return tt__work_wait_last(work, step);
}

/* Step c+1: piece c lies ready, and pieces before it were read. So piece c+2 may overwrite piece c when all have done step c+2. */
typedef struct staged {
    uint32_t base, pieces, c;
} staged;

static size_t piece_bytes(const tt_work *work, uint32_t c) {
    size_t left = bytes_of(work) - (size_t)c * TT__STAGE_BYTES;
    return left < TT__STAGE_BYTES ? left : TT__STAGE_BYTES;
}

static tt__next show_piece(tt_work *work, const staged *s) {
    tt_group *group = work->group;
    memcpy(tt__stage_in(group, group->rank, s->c),
           (const unsigned char *)work->call.send + (size_t)s->c * TT__STAGE_BYTES, piece_bytes(work, s->c));
    tt__finish_step(group, s->base + s->c + 1);
    return tt__work_wait_steps(work, s->base + s->c + 1);
}

static tt__next gather_staged(tt_work *work) {
    tt_group *group = work->group;
    staged *s = TT__STATE(staged, work);
    if (!work->stage++) {
        uint32_t pieces = group->size > 1 ? (uint32_t)((bytes_of(work) + TT__STAGE_BYTES - 1) / TT__STAGE_BYTES) : 0;
        *s = (staged){.base = tt__plan_steps(group, pieces), .pieces = pieces};
        place(work, group->rank, 0, work->call.send, bytes_of(work));
        return pieces ? show_piece(work, s) : TT__NEXT_DONE;
    }
    for (int r = 0; r < group->size; r++)
        if (r != group->rank)
            place(work, r, (size_t)s->c * TT__STAGE_BYTES, tt__stage_in(group, r, s->c), piece_bytes(work, s->c));
    return ++s->c < s->pieces ? show_piece(work, s) : TT__NEXT_DONE;
}

const tt__algorithm tt__all_gather_inline = {
    .name = "inline", .op = TT_OP_ALL_GATHER, .shared = true, .serves = tt__fits_inline, .next = gather_inline};
const tt__algorithm tt__all_gather_symmetric = {.name = "symmetric",
                                                .op = TT_OP_ALL_GATHER,
                                                .shared = true,
                                                .serves_words = tt__all_symmetric,
                                                .next = gather_symmetric};
const tt__algorithm tt__all_gather_staged = {
    .name = "staged", .op = TT_OP_ALL_GATHER, .shared = true, .next = gather_staged};
