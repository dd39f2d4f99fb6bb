/* Events on their way from the thread to the launcher, and orders on theirs to the thread. */
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "launch/cluster/nodes.h"
#include "launch/cluster/nodes_own.h"

#include <stdlib.h>

int tt__nodes_fd(const tt__nodes *nodes) { return nodes->events_fd; }

void tt__nodes_post(tt__nodes *nodes, tt__nodes_event *event) {
    event->next = NULL;
    pthread_mutex_lock(&nodes->lock);
    *nodes->events_end = event;
    nodes->events_end = &event->next;
    pthread_mutex_unlock(&nodes->lock);
    tt__wake_ring(nodes->events_fd);
}

static bool is_round(const tt__nodes_event *event) {
    return event->kind == TT__NODES_DECIDES && event->event.kind == TT__ON_ROUND;
}

/* Is it a round of which it was not known for half a heartbeat that this node takes part? */
static bool is_doubtful(const tt__nodes *nodes, const tt__nodes_event *event) {
    return is_round(event) && event->believed_ms != TT__BELIEVED_ALWAYS &&
           tt__now_ms() - event->believed_ms >= nodes->member.heartbeat_ms / 2;
}

tt__nodes_event *tt__nodes_next(tt__nodes *nodes) {
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event *event = nodes->events;
    nodes->unsure = event && is_doubtful(nodes, event);
    if (nodes->unsure)
        event = NULL;
    if (event && !(nodes->events = event->next))
        nodes->events_end = &nodes->events;
    if (!event && nodes->events_fd >= 0)
        tt__wake_clear(nodes->events_fd);
    pthread_mutex_unlock(&nodes->lock);
    return event;
}

static tt__nodes_event **find_round(tt__nodes *nodes) {
    tt__nodes_event **at = &nodes->events;
    while (*at && (!is_round(*at) || (*at)->believed_ms == TT__BELIEVED_ALWAYS))
        at = &(*at)->next;
    return at;
}

void tt__nodes_believe(tt__nodes *nodes, int64_t now_ms) {
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event *round = *find_round(nodes);
    bool waits = round && (nodes->unsure || round->believed_ms == TT__BELIEVED_NOT_YET);
    if (round)
        round->believed_ms = now_ms;
    pthread_mutex_unlock(&nodes->lock);
    if (waits)
        tt__wake_ring(nodes->events_fd);
}

bool tt__nodes_take_back(tt__nodes *nodes) {
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event **at = find_round(nodes), *round = *at;
    if (round) {
        free(round->event.round.round);
        round->event = (tt__event){.kind = TT__ON_MISSED};
        for (tt__nodes_event *event; (event = round->next);) {
            round->next = event->next;
            tt__nodes_event_free(event);
        }
        nodes->events_end = &round->next;
    }
    pthread_mutex_unlock(&nodes->lock);
    if (round)
        tt__wake_ring(nodes->events_fd);
    return round != NULL;
}

static void free_decision(tt__event *event) {
    if (event->kind == TT__ON_ROUND)
        free(event->round.round);
    else if (event->kind == TT__ON_REMOTE_END)
        tt__remote_end_free(event->end);
    else if (event->kind == TT__ON_LOST || event->kind == TT__ON_LEFT)
        tt__lost_node_free(event->lost.node);
}

void tt__nodes_event_free(tt__nodes_event *event) {
    if (!event)
        return;
    if (event->kind == TT__NODES_DECIDES)
        free_decision(&event->event);
    free(event->text);
    tt__snapshot_free(&event->snapshot);
    free(event);
}

void tt__order_free(tt__order *order) {
    free(order->bytes);
    json_decref(order->news);
    free(order);
}
