/* Which peers are silent or gone. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/message/heartbeat.h"
#include "comm/message/link.h"

/* Other ranks read this text, too, so it names both ends. */
static tt_status fail_link_ended(const tt__link *link) {
    char who[TT__RANK_TEXT_SIZE], own[TT__RANK_TEXT_SIZE];
    tt__rank_text(link->messages, link->peer, link->where, who);
    tt__rank_name(link->messages, link->messages->config.rank, own);
    if (link->transport.peer_left && link->messages->config.peer_name)
        return tt__fail(link->status, "%s has left", who);
    if (link->transport.peer_left)
        return tt__fail(link->status, "%s has left the job: %s", who, link->why);
    if (link->status == TT_ERR_PEER)
        return tt__fail(link->status, "%s is gone; its connection to %s ended: %s", who, own, link->why);
    return tt__fail(link->status, "%s ended its connection to %s: %s", own, who, link->why);
}

bool tt__link_silent(tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    if (!link || !link->tcp || link->ended)
        return false;
    int64_t patience = messages->config.heartbeat_ms - messages->config.heartbeat_ms / 4, now = tt__now_ms();
    tt__beats_check_clock(messages, now);
    if (now - link->received_ms < patience)
        return false;
    tt__messages_progress(messages); /* unread bytes are a sign of life, too */
    return !link->ended && now - link->received_ms >= patience;
}

tt_status tt__link_check(tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    char who[TT__RANK_TEXT_SIZE];
    if (!link || !link->transport.ops || (!link->tcp && !link->ended))
        return TT_OK;
    if (!link->tcp)
        return tt__fail(link->status, "the connection to rank %d in shared memory ended: %s", rank, link->why);
    bool silent = tt__link_silent(messages, rank);
    if (link->ended)
        return fail_link_ended(link);
    if (!silent)
        return TT_OK;
    return tt__fail(TT_ERR_PEER, "%s has been silent for %lld ms: it is frozen, or the network between is cut",
                    tt__rank_text(messages, rank, link->where, who), (long long)(tt__now_ms() - link->received_ms));
}

bool tt__link_is_gone(const tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    return link && link->tcp && link->ended && !link->transport.peer_left && link->status == TT_ERR_PEER;
}
