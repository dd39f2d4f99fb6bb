/* What the parts of nodes.h share: nodes.c, called by the launcher; nodes_thread.c, which it starts (nodes_talk.h);
 * nodes_queue.c, the queue between the two. */
#ifndef TT_LAUNCH_CLUSTER_NODES_OWN_H
#define TT_LAUNCH_CLUSTER_NODES_OWN_H

#include "launch/cluster/nodes_messages.h"

#include <tutti/store.h>

#include <jansson.h>

#include <pthread.h>

enum { TT__NODES_KEY = 64 };

/* An order for the thread. */
typedef struct tt__order {
    struct tt__order *next;
    enum {
        TT__ORDER_SET,
        TT__ORDER_NEWS,
        TT__ORDER_LOOK,
        TT__ORDER_GONE,
        TT__ORDER_CLOSE,
        TT__ORDER_ROUND,
        TT__ORDER_DONE
    } kind;
    char key[TT__NODES_KEY]; /* SET */
    bool own;                /* SET: the thread appends this member's number to the key */
    char *bytes;             /* SET: the value */
    size_t size;
    json_t *news;             /* NEWS */
    int64_t timeout_ms;       /* LOOK */
    int attempt;              /* GONE, ROUND */
    bool kept, well;          /* GONE */
    int restarts;             /* ROUND */
    int recovery;             /* ROUND */
    tt_store_server *renewed; /* ROUND: or NULL */
} tt__order;

struct tt__nodes {
    tt__nodes_member member;
    int events_fd, wake_fd; /* eventfds: to the launcher, to the thread */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    bool stop;
    bool unsure; /* whether the first event, a round, is still to begin */
    tt__nodes_event *events, **events_end;
    tt__order *orders, **orders_end;
};

void *tt__nodes_thread(void *nodes);

void tt__order_free(tt__order *order);

/* Make an eventfd readable. */

/* Post an event; takes it over. */
void tt__nodes_post(tt__nodes *nodes, tt__nodes_event *event);

/* The round that is pending, if there is one, still stands: the coordinator was heard at this time. */
void tt__nodes_believe(tt__nodes *nodes, int64_t now_ms);
/* Replace the pending round, and all later events, by ON_MISSED. False: no round is pending. */
bool tt__nodes_take_back(tt__nodes *nodes);

#endif
