/* What the parts of nodes.h share: nodes.c, called by the launcher; nodes_thread.c, which it starts (nodes_talk.h);
 * nodes_queue.c, the queue between the two. */
#ifndef TT_ELASTIC_NODES_OWN_H
#define TT_ELASTIC_NODES_OWN_H

#include "elastic/nodes.h"

#include <tutti/store.h>

#include <pthread.h>

enum { TT__NODES_KEY = 64 };

/* An order for the thread. */
typedef struct tt__order {
    struct tt__order *next;
    enum { TT__ORDER_SET, TT__ORDER_NEWS, TT__ORDER_LOOK, TT__ORDER_GONE, TT__ORDER_DONE } kind;
    char key[TT__NODES_KEY]; /* SET */
    bool own;                /* SET: the key is this launcher's alone; its nonce is the context */
    char *bytes;             /* SET: the value; NEWS: JSON */
    size_t size;
    int64_t timeout_ms; /* LOOK */
    int attempt;        /* GONE */
} tt__order;

/* What is known of a node. */
typedef struct tt__node {
    bool here;      /* its card is read */
    bool signs;     /* what it writes is signed, */
    char nonce[33]; /* with this context */
    bool lost, done;
    int gone; /* attempts of which it has no worker left */
    int workers, first_rank;
    char hostname[64];
    int64_t beats;      /* last seen, */
    int64_t beat_ms;    /* and when it grew */
    int64_t news;       /* announced by it, */
    int64_t news_taken; /* and read */
    int64_t refused_ms; /* when something of it was last refused; 0: never */
} tt__node;

struct tt__nodes {
    tt__nodes_member member;
    tt__node *of; /* (nodes) */
    int world;
    bool want_final;
    int events_fd, wake_fd; /* eventfds: to the launcher, to the thread */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    bool stop;
    tt__nodes_event *events, **events_end;
    tt__order *orders, **orders_end;
};

void *tt__nodes_thread(void *nodes);

/* Make an eventfd readable. */
void tt__nodes_wake(int fd);

/* Post an event; takes it over. */
void tt__nodes_post(tt__nodes *nodes, tt__nodes_event *event);

#endif
