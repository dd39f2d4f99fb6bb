/* Reduction of small buffers: each rank's elements came with its arrival word, so nothing more is to be waited for. Every rank
 * reduces all of them itself, in the same order and with the same code, so all get the same bits.
 * Per rank: 1 synchronisation, (world - 1) * bytes read from peers. */
#include "comm/collective/collective.h"
#include "comm/reduce_tree.h"

void tt__reduce_inline(tt_group *group, const tt__reduction *reduction, uint32_t seq) {
    const void *src[TT__MAX_WORLD];
    size_t bytes = reduction->count * tt_dtype_size(reduction->dtype);
    if (reduction->root != TT__ALL && reduction->root != group->rank)
        return;
    for (int r = 0; r < group->world; r++)
        src[r] = tt__payload(group, r, seq, bytes);
    if (bytes)
        tt__reduce_tree(&(void *){reduction->buf}, 1, src, group->world, reduction->count, reduction->dtype,
                        reduction->op);
}
