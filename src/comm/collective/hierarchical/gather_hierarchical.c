/* hierarchical, for gather and scatter: between hosts goes one message for each host, not for each rank. On each host
 * the rank with the root's number acts.
 *
 * H hosts of L ranks, blocks of m bytes; ranks may be numbered in any order.
 *   gather    inside a gather to the rank that acts, between hosts one of L m to the root
 *   scatter   between hosts a scatter of L m to the ranks that act, inside one of m
 *   steps between hosts   those of a gather or scatter among H
 *   messages of the root  H-1; direct N-1
 *   bytes between hosts   the same as of any other algorithm
 *   copied                N m by the root */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

enum stage { FIRST, SECOND, END };

typedef struct state {
    unsigned char *host; /* (L): this host's blocks, on a rank that acts */
    unsigned char *all;  /* (H, L): on the root */
} state;

static bool hier_gather_is_gather(const tt_work *work) { return work->call.op == TT_OP_GATHER; }

static bool hier_gather_is_root(const tt_work *work) { return work->group->rank == work->call.root; }

static bool hier_gather_acts(const tt_work *work) {
    return work->group->native->local->rank == tt__local_of(work->group, work->call.root);
}

/* Copy between the root's buffer, in the order of ranks, and its blocks in the order of hosts. */
static void order_blocks(const tt_work *work, const state *s) {
    size_t block = work->call.count * tt_dtype_size(work->call.dtype);
    for (int i = 0; i < work->group->size; i++) {
        unsigned char *at = s->all + (size_t)i * block;
        int r = work->group->native->by_host[i];
        if (hier_gather_is_gather(work))
            tt__copy_block(tt__recv_block(&work->call, r), at);
        else
            tt__copy_block((tt__rank_block){at, block}, tt__send_block(&work->call, r).data);
    }
}

static tt_status hier_gather_plan(tt_work *work) {
    state *s = TT__STATE(state, work);
    size_t host = work->call.count * tt_dtype_size(work->call.dtype) * (size_t)work->group->native->local->size;
    size_t all = hier_gather_is_root(work) ? host * (size_t)work->group->native->cross->size : 0;
    TT__TRY(tt__machine_scratch(work, hier_gather_acts(work) ? host + all : 0));
    s->host = tt__machine_memory(work);
    s->all = hier_gather_is_root(work) ? s->host + host : NULL;
    if (hier_gather_is_root(work) && !hier_gather_is_gather(work))
        order_blocks(work, s);
    return TT_OK;
}

static tt__next hier_gather_inside(tt_work *work, const state *s) {
    bool gather = hier_gather_is_gather(work);
    return tt__leg(work, work->group->native->local,
                   (tt_call){.op = work->call.op,
                             .root = tt__local_of(work->group, work->call.root),
                             .count = work->call.count,
                             .send = gather ? work->call.send : s->host,
                             .recv = gather ? s->host : work->call.recv});
}

static tt__next hier_gather_between(tt_work *work, const state *s) {
    bool gather = hier_gather_is_gather(work);
    return tt__leg(work, work->group->native->cross,
                   (tt_call){.op = work->call.op,
                             .root = tt__host_of(work->group, work->call.root),
                             .count = work->call.count * (size_t)work->group->native->local->size,
                             .send = gather ? s->host : s->all,
                             .recv = gather ? s->all : s->host});
}

static tt__next hier_gather_next(tt_work *work) {
    const state *s = TT__STATE(state, work);
    int stage = work->stage++;
    if (stage == FIRST && hier_gather_plan(work))
        return TT__NEXT_FAILED;
    if (stage == FIRST && !hier_gather_is_gather(work) && !hier_gather_acts(work))
        stage = work->stage++; /* nothing comes to it from another host */
    if (stage < END && hier_gather_is_gather(work) == (stage == FIRST))
        return hier_gather_inside(work, s);
    if (stage < END && hier_gather_acts(work))
        return hier_gather_between(work, s);
    if (hier_gather_is_root(work) && hier_gather_is_gather(work))
        order_blocks(work, s);
    return TT__NEXT_DONE;
}

const tt__algorithm tt__gather_hierarchical = {"hierarchical", TT_OP_GATHER, .children = true,
                                               .serves = tt__serves_hosts, .next = hier_gather_next};
const tt__algorithm tt__scatter_hierarchical = {"hierarchical", TT_OP_SCATTER, .children = true,
                                                .serves = tt__serves_hosts, .next = hier_gather_next};
