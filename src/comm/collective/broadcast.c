/* broadcast: the root's elements to all. On shared memory only the root's buffer is read by peers, so its kind alone decides.
 *
 *   up to TT__INLINE_MAX bytes  with the root's arrival word
 *   root symmetric              every other rank copies from the root's buffer; the root waits until all have
 *   root plain                  through the root's staging memory, TT__STAGE_DEPTH pieces ahead of the slowest reader */
#include "comm/collective/collective.h"

#include <string.h>

tt_status tt_broadcast_with(const tt_broadcast_args *args, size_t size) {
    TT__CALL_ARGS(tt_broadcast_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "broadcast", a->buf, a->count, a->dtype, TT_SUM, a->root));
    const tt_call call = {.op = TT_OP_BROADCAST,
                          .dtype = a->dtype,
                          .root = a->root,
                          .count = a->count,
                          .send = a->buf,
                          .recv = a->buf,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}

static size_t bytes_of(const tt_work *work) { return work->call.count * tt_dtype_size(work->call.dtype); }

static tt__next copy_inline(tt_work *work) {
    size_t bytes = bytes_of(work);
    if (bytes && work->group->rank != work->call.root)
        memcpy(work->call.recv, tt__payload(work->group, work->call.root, work->seq, bytes), bytes);
    return TT__NEXT_DONE;
}

static tt__next copy_symmetric(tt_work *work) {
    tt_group *group = work->group;
    int root = work->call.root;
    if (work->stage++)
        return TT__NEXT_DONE;
    uint32_t step = tt__plan_steps(group, 1) + 1;
    if (group->rank != root)
        memcpy(work->call.recv, tt__symmetric(group, root, work->seq), bytes_of(work));
    tt__finish_step(group, step);
    return group->rank == root ? tt__work_wait_last(work, step) : TT__NEXT_DONE;
}

/* Step c+1 of the root: piece c lies ready. Step c+1 of another: it has read piece c. */
typedef struct staged {
    uint32_t base, pieces, c;
    bool waited;
} staged;

static void copy_piece(tt_work *work, const staged *s) {
    tt_group *group = work->group;
    int root = work->call.root;
    size_t bytes = bytes_of(work), at = (size_t)s->c * TT__STAGE_BYTES;
    size_t n = bytes - at < TT__STAGE_BYTES ? bytes - at : TT__STAGE_BYTES;
    unsigned char *stage = tt__stage_in(group, root, s->c), *buf = (unsigned char *)work->call.recv + at;
    memcpy(group->rank == root ? stage : buf, group->rank == root ? buf : stage, n);
    tt__finish_step(group, s->base + s->c + 1);
    tt__wake_peers(group);
}

static tt__next copy_staged(tt_work *work) {
    tt_group *group = work->group;
    staged *s = TT__STATE(staged, work);
    int root = work->call.root;
    if (!work->stage++) {
        s->pieces = group->size > 1 ? (uint32_t)((bytes_of(work) + TT__STAGE_BYTES - 1) / TT__STAGE_BYTES) : 0;
        *s = (staged){.base = tt__plan_steps(group, s->pieces), .pieces = s->pieces};
    }
    for (; s->c < s->pieces; s->c++, s->waited = false) {
        bool must_wait = !s->waited && (group->rank != root || s->c >= TT__STAGE_DEPTH);
        s->waited = true;
        if (must_wait && group->rank != root)
            return tt__work_wait_ranks(work, s->base + s->c + 1, root, root + 1);
        if (must_wait)
            return tt__work_wait_steps(work, s->base + s->c + 1 - TT__STAGE_DEPTH);
        copy_piece(work, s);
    }
    return TT__NEXT_DONE;
}

static bool root_is_symmetric(const tt_work *work) { return tt__is_symmetric(work->group, work->call.root, work->seq); }

const tt__algorithm tt__broadcast_inline = {
    .name = "inline", .op = TT_OP_BROADCAST, .shared = true, .serves = tt__fits_inline, .next = copy_inline};
const tt__algorithm tt__broadcast_symmetric = {.name = "symmetric",
                                               .op = TT_OP_BROADCAST,
                                               .shared = true,
                                               .serves_words = root_is_symmetric,
                                               .next = copy_symmetric};
const tt__algorithm tt__broadcast_staged = {
    .name = "staged", .op = TT_OP_BROADCAST, .shared = true, .next = copy_staged};
