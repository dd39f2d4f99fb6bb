/* How a launcher finds the coordinator where etcd names it, or becomes it. */
#include "launch/cluster/election.h"
#include "launch/cluster/nodes_talk.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <stdio.h>

/* Is it worth another try, for as long as others are waited for? */
static bool may_ask_again(const tt__talk *t, tt_status status) {
    return (status == TT_ERR_TIMEOUT || status == TT_ERR_NET) && t->began_ms + t->nodes->member.find_ms > tt__now_ms();
}

tt_status tt__talk_ask_etcd(tt__talk *t) {
    tt__nodes_member *m = &t->nodes->member;
    bool own = false;
    if (!m->election)
        return TT_OK;
    TT__TRY(tt__election_look(m->election, &m->port, &own));
    m->host = tt__election_host(m->election);
    m->coordinates = own;
    if (own && !t->collecting)
        tt__talk_collect(t, m->attempt + 1, m->restarts, 0);
    if (!m->port && t->began_ms + m->find_ms <= tt__now_ms())
        return tt__fail(TT_ERR_TIMEOUT, "nobody who serves the store came within %lld s (--rdzv-conf: is_host=false)",
                        (long long)m->find_ms / 1000);
    return TT_OK;
}

bool tt__talk_elect(tt__talk *t) {
    char text[TT__ERROR_TEXT_SIZE + 32];
    tt_status status = tt__talk_ask_etcd(t);
    if (status && may_ask_again(t, status)) {
        snprintf(text, sizeof text, "waiting for etcd: %s", tt_last_error());
        if (!t->told_waiting)
            tt__talk_say_waits(t, text);
        t->told_waiting = true;
        return false;
    }
    if (status) {
        tt__talk_fail(t, tt_last_error());
        t->cut = true;
    }
    return !status && (!t->nodes->member.election || t->nodes->member.port);
}

/* Begin to join once more: the one that was found has gone, or this one may not be it any longer. */
static void look_elsewhere(tt__talk *t) {
    tt_store_free(t->store);
    t->store = NULL;
    tt__election_reset(t->nodes->member.election);
    t->nodes->member.coordinates = false;
    t->known = 0;
    t->list_read = 0;
    t->beats = t->news = t->news_of_before = 0;
    t->heard_ms = t->awaited_beats = 0;
    t->cut = t->collecting = t->told_waiting = t->closed = false;
    t->began_ms = tt__now_ms();
}

void tt__talk_watch_election(tt__talk *t) {
    tt__nodes_member *m = &t->nodes->member;
    if (!m->election || !t->store || t->failed)
        return;
    bool deposed = m->coordinates && !t->over && (t->cut || tt__election_state_of(m->election) == TT__ELECTION_LOST);
    if (!t->round && (deposed || t->cut)) {
        look_elsewhere(t);
    } else if (deposed) {
        tt__talk_decide(t, (tt__event){.kind = TT__ON_DEPOSED}, NULL);
        m->coordinates = false;
        t->cut = true;
    }
}

bool tt__talk_may_compose(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    if (t->failed || !m->election || tt__election_state_of(m->election) == TT__ELECTION_HOLDS)
        return true;
    if (t->collecting && tt__now_ms() - t->collecting_since_ms > m->join_ms)
        tt__talk_fail_all(t, "etcd, which says who coordinates the job, does not answer");
    return false;
}
