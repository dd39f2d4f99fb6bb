/* All algorithms, choosing one, and what a call publishes to the other ranks of its host. */
#include "comm/collective/choose.h"

#include "base/error.h"
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"
#include "comm/collective/shared/shared_algorithms.h"
#include "comm/op.h"

#include <string.h>

/* Is this a collective that another engine carries out? Then it is done when all ranks have arrived. */
static inline bool tt__only_agrees(const tt_work *work) {
    return work->group->native->only_agrees && !tt__op_is(work->call.op, TT__OP_EXCHANGE);
}

const tt__algorithm *const tt__algorithms[] = {
    &tt__all_reduce_inline,
    &tt__all_reduce_carried,
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
    /* On messages: of each op the plainest first. */
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
    &tt__all_gather_neighbor_exchange,
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

enum { MAX_HOSTS = 1024 };

/* From what `tutti tune` measures over loopback TCP and the cost model of docs/collectives.md. */
static const char default_table[] = "# op                  ranks  hosts  bytes  algorithm\n"
                                    "barrier               *      2-     *      hierarchical\n"
                                    "barrier               *      *      *      dissemination\n"
                                    "all_reduce            2      *      256K   direct\n"
                                    "all_reduce            2      *      *      slices\n"
                                    "all_reduce            *      2-     *      hierarchical\n"
                                    "all_reduce            3-4    *      16K    direct\n"
                                    "all_reduce            5-16   *      4K     direct\n"
                                    "all_reduce            17-64  *      1K     halving_doubling\n"
                                    "all_reduce            3-64   *      *      slices\n"
                                    "all_reduce            *      *      *      halving_doubling\n"
                                    "reduce                2-8    *      16K    direct\n"
                                    "reduce                *      2-     *      hierarchical\n"
                                    "reduce                2      *      *      direct\n"
                                    "reduce                9-     *      16K    binomial\n"
                                    "reduce                3-64   *      *      slices\n"
                                    "reduce                *      *      *      binomial\n"
                                    "reduce_scatter        *      2-     *      hierarchical\n"
                                    "reduce_scatter        9-64   *      1K     halving\n"
                                    "reduce_scatter        2-64   *      *      direct\n"
                                    "reduce_scatter        *      *      *      halving\n"
                                    "broadcast             *      2-     *      hierarchical\n"
                                    "broadcast             2-8    *      16K    direct\n"
                                    "broadcast             2      *      *      binomial\n"
                                    "broadcast             *      *      64K    binomial\n"
                                    "broadcast             3-64   *      *      scatter_all_gather\n"
                                    "broadcast             *      *      *      chain\n"
                                    "all_gather            *      2-     *      hierarchical\n"
                                    "all_gather            9-     *      2K     recursive_doubling\n"
                                    "all_gather            9-     *      2K     bruck\n"
                                    "all_gather            2-64   *      *      direct\n"
                                    "all_gather            *      *      *      neighbor_exchange\n"
                                    "all_gather            *      *      *      ring\n"
                                    "all_gather_v          *      2-     *      hierarchical\n"
                                    "all_gather_v          2-64   *      *      direct\n"
                                    "all_gather_v          *      *      *      ring\n"
                                    "gather                9-     2-     4K     hierarchical\n"
                                    "gather                33-    *      1K     binomial\n"
                                    "gather                *      *      *      direct\n"
                                    "scatter               9-     2-     4K     hierarchical\n"
                                    "scatter               33-    *      1K     binomial\n"
                                    "scatter               *      *      *      direct\n"
                                    "all_to_all            5-     2-     4K     hierarchical\n"
                                    "all_to_all            9-     *      256    bruck\n"
                                    "all_to_all            2-16   *      *      direct\n"
                                    "all_to_all            *      *      *      pairwise\n"
                                    "all_to_all_v          2-16   *      *      direct\n"
                                    "all_to_all_v          *      *      *      pairwise\n"
                                    "all_reduce_coalesced  *      *      *      packed\n";

const char *tt__tuning_default(void) { return default_table; }

/* Host numbers are small: they count from 0 within the job. */
uint32_t tt__hosts_of(const tt_group *group) {
    uint64_t seen[MAX_HOSTS / 64] = {0};
    uint32_t hosts = 0;
    if (group->native->shared || !group->native->world->peers)
        return 1;
    for (int r = 0; r < group->size; r++) {
        unsigned host = (unsigned)group->native->world->peers[group->ranks[r]].host % MAX_HOSTS;
        hosts += !(seen[host / 64] >> host % 64 & 1);
        seen[host / 64] |= UINT64_C(1) << host % 64;
    }
    return hosts;
}

/* The bytes by which to choose: the same on all ranks, whatever they pass. */
static uint64_t choose_bytes_of(const tt_group *group, const tt_call *call) {
    uint64_t size = tt_dtype_size(call->dtype), total = 0;
    if (call->op == TT_OP_ALL_TO_ALL_V)
        return 0;
    if (call->op != TT_OP_ALL_GATHER_V)
        return call->count * size;
    for (int r = 0; r < group->size; r++)
        total += call->recv_counts[r];
    return total * size / (uint64_t)group->size;
}

static bool choose_serves(const tt__algorithm *algorithm, const tt_group *group, const tt_call *call) {
    return algorithm->op == call->op && !algorithm->shared && (!algorithm->serves || algorithm->serves(group, call));
}

static bool span_holds(tt__span_of span, uint32_t value) { return value >= span.from && value <= span.to; }

/* Choose the first algorithm that serves, where no line fits. For a group of one rank that is the plainest. */
static const tt__algorithm *first_of(const tt_group *group, const tt_call *call) {
    for (size_t i = 0; i < tt__algorithm_count; i++)
        if (!tt__algorithms[i]->own_order && choose_serves(tt__algorithms[i], group, call))
            return tt__algorithms[i];
    return NULL;
}

/* Does a line apply to such a call? Its algorithm may still not serve it. */
static bool rule_fits(const tt__algorithm_rule *rule, const tt_group *group, const tt_call *call) {
    return rule->algorithm->op == call->op && choose_bytes_of(group, call) <= rule->bytes &&
           span_holds(rule->ranks, (uint32_t)group->size) && span_holds(rule->hosts, tt__hosts_of(group));
}

const tt__algorithm *tt__choose_by(const tt__tuning *tuning, const tt_group *group, const tt_call *call) {
    for (size_t i = 0; group->size > 1 && tuning && i < tuning->count; i++)
        if (rule_fits(&tuning->rules[i], group, call) && choose_serves(tuning->rules[i].algorithm, group, call))
            return tuning->rules[i].algorithm;
    return first_of(group, call);
}

/* Choose by the world's table. */
static const tt__algorithm *choose_on_messages(const tt_group *group, const tt_call *call) {
    return tt__choose_by(group->native->world->tuning, group, call);
}

/* ---- for works */

/* Map an op to the one that the table has for it: all exchanges share one. */
static tt_op table_op(tt_op op) { return tt__op_is(op, TT__OP_EXCHANGE) ? TT_OP_NEW_GROUP : op; }

static bool serves_work(const tt__algorithm *algorithm, const tt_work *work) {
    return algorithm->op == table_op(work->call.op) &&
           algorithm->shared == (work->group->native->shared && !tt__op_is(work->call.op, TT__OP_BY_MESSAGES)) &&
           !algorithm->own_order && (!algorithm->serves || algorithm->serves(work->group, &work->call)) &&
           (!algorithm->serves_words || algorithm->serves_words(work));
}

/* Return the algorithm on shared memory that the table names. Without one, the first that serves is the best. */
static const tt__algorithm *named_algorithm(const tt_work *work) {
    const tt__tuning *tuning = work->group->native->world->tuning;
    for (size_t i = 0; tuning && tuning->on_shared_memory && i < tuning->count; i++)
        if (rule_fits(&tuning->rules[i], work->group, &work->call) && serves_work(tuning->rules[i].algorithm, work))
            return tuning->rules[i].algorithm;
    return NULL;
}

static const tt__algorithm *choose_barrier(const tt_group *group) {
    return group->native->shared ? &tt__barrier_words
                                 : choose_on_messages(group, &(tt_call){.op = TT_OP_BARRIER, .dtype = TT_U8});
}

const tt__algorithm *tt__choose(const tt_work *work) {
    if (__builtin_expect(tt__only_agrees(work) && !tt__op_is(work->call.op, TT__OP_BY_MESSAGES), 0))
        return choose_barrier(work->group);
    const tt__algorithm *chosen =
        work->group->native->shared ? named_algorithm(work) : choose_on_messages(work->group, &work->call);
    for (size_t i = 0; i < tt__algorithm_count && !chosen; i++)
        if (serves_work(tt__algorithms[i], work))
            chosen = tt__algorithms[i];
    if (chosen)
        return chosen;
    return tt__fail_null(TT_ERR_UNSUPPORTED, "%s has no algorithm %s yet", tt_op_name(work->call.op),
                         work->group->native->shared ? "on shared memory" : "between hosts");
}

const tt__algorithm *tt__choose_packed(const tt_work *work) {
    tt_call whole = work->call;
    if (work->call.op != TT_OP_ALL_REDUCE_COALESCED || work->algorithm->shared)
        return NULL;
    whole.op = TT_OP_ALL_REDUCE;
    return choose_on_messages(work->group, &whole);
}

/* Return the algorithm on shared memory that a table names for the call. The others' words, not yet known, may still
 * rule it out. */
static const tt__algorithm *wanted_on_shared_memory(const tt_work *work) {
    const tt__tuning *tuning = work->group->native->world->tuning;
    for (size_t i = 0; tuning && tuning->on_shared_memory && i < tuning->count; i++)
        if (tuning->rules[i].algorithm->shared && rule_fits(&tuning->rules[i], work->group, &work->call))
            return tuning->rules[i].algorithm;
    return NULL;
}

/* Offer small data with the word; of larger data offer the address. */
static void offer_data(const void *data, size_t bytes, tt__offer *offer) {
    if (bytes <= TT__INLINE_MAX)
        *offer = (tt__offer){.payload = data, .bytes = bytes};
    else
        *offer = (tt__offer){.symmetric = data, .extent = bytes};
}

/* Are symmetric buffers read in place? Small ones travel with the word where that is faster (call/calls.c), or where
 * the forced algorithm is "inline". The word tells peers which was chosen. */
static bool reads_in_place(const tt_work *work, size_t bytes) {
    const tt__algorithm *wanted = wanted_on_shared_memory(work);
    if (wanted && bytes <= TT__INLINE_MAX)
        return strcmp(wanted->name, "inline") != 0;
    return !tt__rides(work->group, bytes) && (bytes > TT__INLINE_MAX || work->group->native->spin);
}

static void offer_reduction(const tt_work *work, size_t bytes, tt__offer *offer) {
    const tt_group *group = work->group;
    const tt_call *call = &work->call;
    if (reads_in_place(work, bytes) && tt__in_heap(group->native->world, call->send, bytes))
        *offer = (tt__offer){.symmetric = call->send, .extent = bytes};
    else if (bytes <= tt__inline_max(group, call->op))
        *offer = (tt__offer){.payload = call->send, .bytes = bytes};
    else if (call->op == TT_OP_ALL_REDUCE && bytes <= TT__CARRIED_MAX)
        tt__carried_give(group, group->native->seq + 1, call);
}

void tt__offer_of(const tt_work *work, tt__offer *offer, void *room) {
    const tt_call *call = &work->call;
    size_t bytes = call->count * tt_dtype_size(call->dtype);
    if (__builtin_expect(tt__only_agrees(work), 0))
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
