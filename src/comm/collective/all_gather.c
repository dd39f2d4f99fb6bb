/* all_gather: every rank's elements to all.
 *
 *   up to TT__INLINE_MAX bytes a rank  with the arrival words
 *   all `send` symmetric               every rank copies from the others' buffers; all wait until all have
 *   else                               piece by piece through everybody's staging memory */
#include "base/error.h"
#include "comm/collective/collective.h"

#include <string.h>

typedef struct gather {
    tt_group *group;
    const unsigned char *send;
    unsigned char *recv; /* (world, bytes) */
    size_t bytes;
} gather;

/* Put n bytes of rank r, from byte `at` of its share on. The own share may lie there already. */
static void place(const gather *g, int r, size_t at, const void *from, size_t n) {
    unsigned char *to = g->recv + (size_t)r * g->bytes + at;
    if (to != from && n)
        memcpy(to, from, n);
}

static void gather_inline(const gather *g) {
    for (int r = 0; r < g->group->world; r++)
        place(g, r, 0, r == g->group->rank ? g->send : tt__payload(g->group, r, g->group->seq, g->bytes), g->bytes);
}

static tt_status gather_symmetric(const gather *g) {
    tt_group *group = g->group;
    uint32_t step = tt__plan_steps(group, 1) + 1;
    for (int i = 0; i < group->world; i++) { /* start with the next rank, so that not all read the same one */
        int r = (group->rank + 1 + i) % group->world;
        place(g, r, 0, r == group->rank ? (const void *)g->send : tt__symmetric(group, r, group->seq), g->bytes);
    }
    tt__finish_step(group, step);
    return tt__wait_steps(group, step);
}

/* Step c+1: piece c lies ready, and pieces before it were read. So piece c+2 may overwrite piece c when all have done step c+2. */
static tt_status gather_staged(const gather *g) {
    tt_group *group = g->group;
    uint32_t pieces = (uint32_t)((g->bytes + TT__STAGE_BYTES - 1) / TT__STAGE_BYTES);
    uint32_t base = tt__plan_steps(group, pieces);
    place(g, group->rank, 0, g->send, g->bytes);
    for (uint32_t c = 0; c < pieces; c++) {
        size_t at = (size_t)c * TT__STAGE_BYTES, n = g->bytes - at;
        n = n < TT__STAGE_BYTES ? n : TT__STAGE_BYTES;
        memcpy(tt__stage_in(group, group->rank, c), g->send + at, n);
        tt__finish_step(group, base + c + 1);
        TT__TRY(tt__wait_steps(group, base + c + 1));
        for (int r = 0; r < group->world; r++)
            if (r != group->rank)
                place(g, r, at, tt__stage_in(group, r, c), n);
    }
    return TT_OK;
}

tt_status tt__all_gather_at(tt_group *group, const void *send, void *recv, size_t count, tt_dtype dtype,
                            const char *file, int line) {
    const tt__call call = {TT__OP_ALL_GATHER, dtype, TT_SUM, 0, count, file, line};
    const gather g = {group, send, recv, count * tt_dtype_size(dtype)};
    bool is_inline = g.bytes <= TT__INLINE_MAX, symmetric;
    TT__TRY(tt__check_call(group, "all_gather", send, count, dtype, TT_SUM, 0));
    TT__TRY(tt__check_call(group, "all_gather", recv, count, dtype, TT_SUM, 0));
    TT__TRY(tt__work_drain(group));
    TT__TRY(tt__meet(group, &call, send, is_inline ? g.bytes : 0,
                     !is_inline && tt__in_heap(group, send, g.bytes) ? send : NULL, &symmetric));
    if (!is_inline)
        return symmetric ? gather_symmetric(&g) : gather_staged(&g);
    gather_inline(&g);
    return TT_OK;
}
