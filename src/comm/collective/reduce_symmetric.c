/* Reduction of symmetric buffers: each rank reduces its slice of all ranks' buffers and stores it where it belongs, into every buffer
 * or into the root's. Slices don't overlap, so ranks need no order among themselves; the result is complete when all have finished.
 * Per rank of N, with n bytes: 2 synchronisations, n bytes read, n (to a root: n / N) written, no copy. */
#include "comm/collective/collective.h"
#include "comm/reduce_tree.h"

void tt__reduce_symmetric(tt_group *group, const tt__reduction *reduction, uint32_t seq) {
    void *buffers[TT__MAX_WORLD];
    tt__slice slice = tt__slice_of(reduction->count, reduction->dtype, group->world, group->rank);
    for (int r = 0; r < group->world; r++)
        buffers[r] = (unsigned char *)tt__symmetric(group, r, seq) + slice.at * tt_dtype_size(reduction->dtype);
    bool all = reduction->root == TT__ALL;
    if (slice.n)
        tt__reduce_tree(all ? buffers : &buffers[reduction->root], all ? group->world : 1, (const void *const *)buffers,
                        group->world, slice.n, reduction->dtype, reduction->op);
}
