#include "comm/collective/algorithms.h"

#include "base/error.h"
#include "comm/collective/choose.h"
#include "comm/collective/collective.h"
#include "comm/collective/message_algorithms.h"
#include "comm/collective/p2p.h"

#include <string.h>

const tt__algorithm *const tt__algorithms[] = {
    &tt__all_reduce_inline,
    &tt__all_reduce_symmetric,
    &tt__all_reduce_staged,
    &tt__reduce_inline,
    &tt__reduce_symmetric,
    &tt__reduce_staged,
    &tt__coalesced_inline,
    &tt__coalesced_symmetric,
    &tt__coalesced_staged,
    &tt__reduce_scatter_blocks,
    &tt__broadcast_blocks,
    &tt__gather_blocks,
    &tt__scatter_blocks,
    &tt__all_gather_blocks,
    &tt__all_gather_v_blocks,
    &tt__all_to_all_blocks,
    &tt__all_to_all_v_blocks,
    &tt__barrier_words,
    &tt__exchange_words,
    &tt__exchange_bruck,
    &tt__monitored_barrier_messages,
    /* On messages; of each op the plainest first. */
    &tt__barrier_dissemination,
    &tt__barrier_hierarchical,
    &tt__all_reduce_direct,
    &tt__all_reduce_slices,
    &tt__all_reduce_halving_doubling,
    &tt__all_reduce_ring,
    &tt__all_reduce_hierarchical,
    &tt__reduce_direct,
    &tt__reduce_slices,
    &tt__reduce_binomial,
    &tt__reduce_hierarchical,
    &tt__reduce_scatter_direct,
    &tt__reduce_scatter_halving,
    &tt__reduce_scatter_hierarchical,
    &tt__broadcast_direct,
    &tt__broadcast_binomial,
    &tt__broadcast_chain,
    &tt__broadcast_scatter,
    &tt__broadcast_hierarchical,
    &tt__all_gather_direct,
    &tt__all_gather_ring,
    &tt__all_gather_bruck,
    &tt__all_gather_doubling,
    &tt__all_gather_hierarchical,
    &tt__all_gather_v_direct,
    &tt__all_gather_v_ring,
    &tt__all_gather_v_hierarchical,
    &tt__gather_direct,
    &tt__gather_binomial,
    &tt__gather_hierarchical,
    &tt__scatter_direct,
    &tt__scatter_binomial,
    &tt__scatter_hierarchical,
    &tt__all_to_all_direct,
    &tt__all_to_all_pairwise,
    &tt__all_to_all_bruck,
    &tt__all_to_all_hierarchical,
    &tt__all_to_all_v_direct,
    &tt__all_to_all_v_pairwise,
    &tt__all_reduce_coalesced_packed,
    &tt__send_message,
    &tt__recv_message,
    &tt__batch_messages,
};
const size_t tt__algorithm_count = sizeof tt__algorithms / sizeof *tt__algorithms;

uint8_t tt__algorithm_number(const tt__algorithm *algorithm) {
    for (size_t i = 0; i < tt__algorithm_count; i++)
        if (tt__algorithms[i] == algorithm)
            return (uint8_t)(i + 1);
    return 0;
}

const char *tt__algorithm_name(uint8_t number) {
    return number && number <= tt__algorithm_count ? tt__algorithms[number - 1]->name : "?";
}

/* What makes and ends groups and memory is an exchange, whatever it is called. */
static tt_op kind_of(tt_op op) { return op >= TT_OP_NEW_GROUP ? TT_OP_NEW_GROUP : op; }

static bool serves(const tt__algorithm *algorithm, const tt_work *work) {
    return algorithm->op == kind_of(work->call.op) &&
           algorithm->shared == (work->group->shared && !tt__by_messages(work->call.op)) && !algorithm->own_order &&
           (!algorithm->serves || algorithm->serves(work->group, &work->call)) &&
           (!algorithm->serves_words || algorithm->serves_words(work));
}

/* On shared memory the first that serves is the best; a table may name another. */
static const tt__algorithm *named(const tt_work *work) {
    const tt__tuning *tuning = work->group->world->tuning;
    for (size_t i = 0; tuning && tuning->on_shared_memory && i < tuning->count; i++)
        if (tt__rule_fits(&tuning->rules[i], work->group, &work->call) && serves(tuning->rules[i].algorithm, work))
            return tuning->rules[i].algorithm;
    return NULL;
}

/* Before the others' words are known: what a table names for such a call, should they allow it. */
static const tt__algorithm *wanted_on_shared_memory(const tt_work *work) {
    const tt__tuning *tuning = work->group->world->tuning;
    for (size_t i = 0; tuning && tuning->on_shared_memory && i < tuning->count; i++)
        if (tuning->rules[i].algorithm->shared && tt__rule_fits(&tuning->rules[i], work->group, &work->call))
            return tuning->rules[i].algorithm;
    return NULL;
}

/* A collective that another engine carries out: that all ranks have come is enough. */
static bool only_agrees(const tt_work *work) { return work->group->only_agrees && work->call.op < TT_OP_NEW_GROUP; }

static const tt__algorithm *choose_barrier(const tt_group *group) {
    return group->shared ? &tt__barrier_words
                         : tt__choose_on_messages(group, &(tt_call){.op = TT_OP_BARRIER, .dtype = TT_U8});
}

const tt__algorithm *tt__choose(const tt_work *work) {
    if (__builtin_expect(only_agrees(work) && !tt__by_messages(work->call.op), 0))
        return choose_barrier(work->group);
    const tt__algorithm *chosen = work->group->shared ? named(work) : tt__choose_on_messages(work->group, &work->call);
    for (size_t i = 0; i < tt__algorithm_count && !chosen; i++)
        if (serves(tt__algorithms[i], work))
            chosen = tt__algorithms[i];
    if (chosen)
        return chosen;
    return tt__fail_null(TT_ERR_UNSUPPORTED, "%s has no algorithm %s yet", tt_op_name(work->call.op),
                         work->group->shared ? "on shared memory" : "between hosts");
}

/* Small data ride with the word; of larger ones the peers learn where they lie. */
static void offer_data(const void *data, size_t bytes, tt__offer *offer) {
    if (bytes <= TT__INLINE_MAX)
        *offer = (tt__offer){.payload = data, .bytes = bytes};
    else
        *offer = (tt__offer){.symmetric = data, .extent = bytes};
}

/* Small symmetric buffers ride only where that spares more than it costs, see all_reduce.c, or where a name says so. Peers see from the word which
 * it was. */
static bool reads_in_place(const tt_work *work, size_t bytes) {
    const tt__algorithm *wanted = wanted_on_shared_memory(work);
    if (wanted && bytes <= TT__INLINE_MAX)
        return strcmp(wanted->name, "inline") != 0;
    return !tt__rides(work->group, bytes) && work->group->spin;
}

static void offer_reduction(const tt_work *work, size_t bytes, tt__offer *offer) {
    const tt_group *group = work->group;
    if (reads_in_place(work, bytes) && tt__in_heap(group->world, work->call.send, bytes))
        *offer = (tt__offer){.symmetric = work->call.send, .extent = bytes};
    else
        offer_data(work->call.send, bytes, offer);
}

void tt__offer_of(const tt_work *work, tt__offer *offer, void *room) {
    const tt_call *call = &work->call;
    size_t bytes = call->count * tt_dtype_size(call->dtype);
    if (__builtin_expect(only_agrees(work), 0))
        return;
    switch (call->op) {
    case TT_OP_ALL_REDUCE:
    case TT_OP_REDUCE:
        offer_reduction(work, bytes, offer);
        break;
    case TT_OP_BROADCAST:
    case TT_OP_ALL_GATHER:
    case TT_OP_GATHER:
    case TT_OP_SCATTER:
    case TT_OP_ALL_GATHER_V:
    case TT_OP_ALL_TO_ALL:
    case TT_OP_ALL_TO_ALL_V:
    case TT_OP_REDUCE_SCATTER:
        tt__blocks_offer(work, offer, room);
        break;
    case TT_OP_ALL_REDUCE_COALESCED:
        tt__coalesced_offer(work, offer, room);
        break;
    case TT_OP_NEW_GROUP:
    case TT_OP_SPLIT:
    case TT_OP_ALLOC:
    case TT_OP_FREE:
        offer_data(call->send, call->buffers, offer);
        break;
    default:
        break;
    }
}
