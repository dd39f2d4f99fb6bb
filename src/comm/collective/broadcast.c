/* broadcast: the root's elements to all. Only the root's buffer is read by peers, so its kind alone decides.
 *
 *   up to TT__INLINE_MAX bytes  with the root's arrival word
 *   root symmetric              every other rank copies from the root's buffer; the root waits until all have
 *   root plain                  through the root's staging memory, TT__STAGE_DEPTH pieces ahead of the slowest reader */
#include "base/error.h"
#include "comm/collective/collective.h"

#include <string.h>

static void copy_inline(const tt_group *group, void *buf, size_t bytes, int root) {
    if (bytes && group->rank != root)
        memcpy(buf, tt__payload(group, root, group->seq, bytes), bytes);
}

static tt_status copy_symmetric(tt_group *group, void *buf, size_t bytes, int root) {
    uint32_t step = tt__plan_steps(group, 1) + 1;
    if (group->rank != root)
        memcpy(buf, tt__symmetric(group, root, group->seq), bytes);
    tt__finish_step(group, step);
    tt__ring(group);
    return group->rank == root ? tt__wait_steps(group, step) : TT_OK;
}

/* Step c+1 of the root: piece c lies ready. Step c+1 of another: it has read piece c. */
static tt_status copy_staged(tt_group *group, unsigned char *buf, size_t bytes, int root) {
    uint32_t pieces = (uint32_t)((bytes + TT__STAGE_BYTES - 1) / TT__STAGE_BYTES);
    uint32_t base = tt__plan_steps(group, pieces);
    for (uint32_t c = 0; c < pieces; c++) {
        size_t at = (size_t)c * TT__STAGE_BYTES, n = bytes - at < TT__STAGE_BYTES ? bytes - at : TT__STAGE_BYTES;
        if (group->rank != root) {
            TT__TRY(tt__wait_for(group, &(tt__wait){TT__STEP, base + c + 1, root, root + 1}));
            memcpy(buf + at, tt__stage_in(group, root, c), n);
        } else {
            for (int r = 0; c >= TT__STAGE_DEPTH && r < group->world; r++)
                if (r != root)
                    TT__TRY(tt__wait_for(group, &(tt__wait){TT__STEP, base + c + 1 - TT__STAGE_DEPTH, r, r + 1}));
            memcpy(tt__stage_in(group, root, c), buf + at, n);
        }
        tt__finish_step(group, base + c + 1);
        tt__ring(group);
    }
    return TT_OK;
}

tt_status tt__broadcast_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, int root, const char *file,
                           int line) {
    const tt__call call = {TT__OP_BROADCAST, dtype, TT_SUM, root, count, file, line};
    size_t bytes = count * tt_dtype_size(dtype);
    bool is_inline = bytes <= TT__INLINE_MAX, symmetric;
    TT__TRY(tt__check_call(group, "broadcast", buf, count, dtype, TT_SUM, root));
    TT__TRY(tt__work_drain(group));
    TT__TRY(tt__meet(group, &call, buf, is_inline && group->rank == root ? bytes : 0,
                     !is_inline && tt__in_heap(group, buf, bytes) ? buf : NULL, &symmetric));
    if (is_inline)
        copy_inline(group, buf, bytes, root);
    else if (group->world > 1)
        return tt__is_symmetric(group, root, group->seq) ? copy_symmetric(group, buf, bytes, root)
                                                         : copy_staged(group, buf, bytes, root);
    return TT_OK;
}
