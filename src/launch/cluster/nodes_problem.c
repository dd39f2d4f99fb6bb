/* A launcher that can't start its workers (the program is missing on its node) still tells the others why, so that they
 * don't wait for it. */
#include "launch/cluster/nodes.h"
#include "launch/cluster/nodes_talk.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"

#include <stdlib.h>

/* Wait, as the coordinator, until the others have read its card. */
static tt_status wait_until_all_know(tt__talk *t, int64_t deadline) {
    int others = t->nodes->member.min_nodes - 1, left = 0; /* in a set that may be larger nobody else need come */
    while (left < others && tt__left_ms(deadline)) {
        TT__TRY(tt__talk_read_left(t, &left));
        if (left < others)
            tt__sleep_ms(20);
    }
    return TT_OK;
}

static tt_status tell_problem(tt__talk *t, int64_t deadline) {
    const tt__nodes_member *m = &t->nodes->member;
    TT__TRY(tt__secret_load(&t->secret));
    for (tt_status status; (status = tt__talk_ask_etcd(t)) || !m->port; tt__sleep_ms(20))
        if ((status && status != TT_ERR_TIMEOUT) || !tt__left_ms(deadline))
            return status ? status : tt__fail(TT_ERR_TIMEOUT, "nobody is found to tell");
    TT__TRY(tt_tcp_store(&t->store, m->host, m->port, .timeout_ms = tt__left_ms(deadline)));
    TT__TRY(tt__talk_introduce(t));
    for (; !t->introduced && !t->cut && tt__left_ms(deadline); tt__sleep_ms(20))
        tt__talk_read_cards(t);
    return m->coordinates ? wait_until_all_know(t, deadline) : TT_OK;
}

void tt__nodes_tell_problem(const tt__nodes_member *member, int64_t timeout_ms) {
    tt__nodes nodes = {.member = *member, .events_fd = -1, .wake_fd = -1};
    tt__talk t = {.nodes = &nodes, .began_ms = tt__now_ms()};
    nodes.events_end = &nodes.events;
    tt_ignore(tell_problem(&t, tt__deadline_ms(timeout_ms < member->join_ms ? timeout_ms : member->join_ms)));
    tt_store_free(t.store);
    tt__secret_wipe(&t.secret);
    json_decref(t.foretold);
    free(t.of);
    for (tt__nodes_event *event; (event = nodes.events);) { /* what is said to a launcher that takes part */
        nodes.events = event->next;
        tt__nodes_event_free(event);
    }
}
