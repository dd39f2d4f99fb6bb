/* What a call on shared memory publishes with its arrival word. */
#include "comm/collective/algorithms.h"

#include "comm/collective/choose.h"
#include "comm/collective/shared/shared_algorithms.h"
#include "comm/op.h"

#include <string.h>

/* Return the algorithm that a table names for such a call, if the others' words, which are not known yet, will allow
 * it. */
static const tt__algorithm *wanted_on_shared_memory(const tt_work *work) {
    const tt__tuning *tuning = work->group->native->world->tuning;
    for (size_t i = 0; tuning && tuning->on_shared_memory && i < tuning->count; i++)
        if (tuning->rules[i].algorithm->shared && tt__rule_fits(&tuning->rules[i], work->group, &work->call))
            return tuning->rules[i].algorithm;
    return NULL;
}

/* Offer small data with the word, and of larger ones where they lie. */
static void offer_data(const void *data, size_t bytes, tt__offer *offer) {
    if (bytes <= TT__INLINE_MAX)
        *offer = (tt__offer){.payload = data, .bytes = bytes};
    else
        *offer = (tt__offer){.symmetric = data, .extent = bytes};
}

/* Are small symmetric buffers read in place? They travel with the word only where that is faster (call/calls.c), or
 * where the forced algorithm says so. Peers see from the word which it was. */
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
