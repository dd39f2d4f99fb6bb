/* Join through a store: compare functions with those that are there, and take the name. Keys of a worker that was lost
 * are replaced. Whether a worker is lost is found out by connecting to it. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "rpc/workers/store_cards.h"

#include <string.h>

/* Connect to the worker of a card. *there: it answers. Errors: TT_ERR_TIMEOUT it is not known in time; other
 * failures. */
static tt_status look_for(const tt__rpc_cards *cards, tt__rpc_network *network, const tt__rpc_card *card,
                          int64_t deadline_ms, bool *there) {
    tt__rpc_reach reach = TT__RPC_CONNECTING;
    pthread_mutex_lock(network->lock);
    while ((reach = network->ops->reach(network, card->id)) == TT__RPC_CONNECTING && tt__left_ms(deadline_ms))
        network->ops->sleep(network, tt__left_ms(deadline_ms));
    pthread_mutex_unlock(network->lock);
    *there = reach == TT__RPC_REACHED;
    if (*there)
        return TT_OK;
    if (reach == TT__RPC_CONNECTING)
        return tt__fail(TT_ERR_TIMEOUT,
                        "worker %s could not find out in time whether worker %s (id %d, host %s) is there",
                        cards->own.intro.name, card->intro.name, card->id, card->intro.host);
    tt_status status = tt_last_status();
    bool is_lost = status == TT_ERR_PEER || status == TT_ERR_NET || status == TT_ERR_TIMEOUT;
    return is_lost ? TT_OK : status;
}

/* Read the card of a worker, and connect to it. *there: it answers; else it is lost, or has left. */
static tt_status look_for_id(tt__rpc_cards *cards, tt__rpc_network *network, int id, int64_t deadline_ms, bool *there) {
    tt__rpc_card card;
    *there = false;
    tt_status status = tt__rpc_cards_find(cards, id, NULL, &card);
    if (status)
        return status == TT_ERR_NOT_FOUND ? TT_OK : status;
    return look_for(cards, network, &card, deadline_ms, there);
}

static tt_status take_worker_name(tt__rpc_cards *cards, tt__rpc_network *network, int64_t deadline_ms) {
    tt__rpc_card other, *lost = NULL;
    for (;;) {
        bool taken, there;
        TT__TRY(tt__rpc_cards_take_name(cards, lost, &taken, &other));
        if (!taken)
            return TT_OK;
        if (!tt__left_ms(deadline_ms))
            return tt__fail(TT_ERR_TIMEOUT,
                            "worker %s could not take its name in time: others that are not there have it, the last "
                            "with id %d on host %s",
                            cards->own.intro.name, other.id, other.intro.host);
        TT__TRY(look_for_id(cards, network, other.id, deadline_ms, &there));
        if (there)
            return tt__fail(TT_ERR_EXISTS,
                            "two workers are named %s: one with id %d on host %s is there already, this one on host %s "
                            "would be another",
                            other.intro.name, other.id, other.intro.host, cards->own.intro.host);
        tt__log(TT_LOG_INFO, "worker %s (id %d, host %s) is not there any more; this one takes its name",
                other.intro.name, other.id, other.intro.host);
        tt__rpc_cards_remove_lost(cards, other.id);
        lost = &other;
    }
}

static tt_status compare_with_first(tt__rpc_cards *cards, tt__rpc_network *network, int64_t deadline_ms) {
    tt__saved_error mismatch;
    int other;
    bool there;
    tt_status status = tt__rpc_cards_compare_functions(cards, false, &other);
    if (status != TT_ERR_MISMATCH)
        return status;
    tt__error_save(&mismatch);
    TT__TRY(look_for_id(cards, network, other, deadline_ms, &there));
    if (!there)
        return tt__rpc_cards_compare_functions(cards, true, &other);
    tt__error_restore(&mismatch);
    return status;
}

tt_status tt__rpc_cards_join(tt__rpc_cards *cards, tt__rpc_network *network, bool compares, int64_t deadline_ms) {
    if (compares)
        TT__TRY(compare_with_first(cards, network, deadline_ms));
    TT__TRY(tt__rpc_cards_publish(cards));
    return take_worker_name(cards, network, deadline_ms);
}
