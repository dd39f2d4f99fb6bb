/* What the launcher gives to the thread that communicates with the other launchers (nodes.h), and gets from it. */
#ifndef TT_LAUNCH_CLUSTER_NODES_MESSAGES_H
#define TT_LAUNCH_CLUSTER_NODES_MESSAGES_H

#include "launch/local/snapshot.h"
#include "launch/machine/machine_events.h"

#include <tutti/store.h>

typedef struct tt__nodes tt__nodes;

typedef struct tt__nodes_member {
    bool coordinates;         /* it serves the store */
    int number;               /* of a fixed set: the node's; -1: it gets one. 0 of the coordinator */
    int min_nodes, max_nodes; /* the same: a fixed set, or one of as many */
    const char *host;         /* of the store */
    int port;
    const char *run_id;
    int workers;          /* on this node */
    bool wants_trace;     /* what all ranks did last */
    bool has_secret;      /* of the job's, */
    bool demands_it;      /* and does not go on with a node that has none */
    int max_restarts;     /* the same on all nodes */
    int attempt;          /* the last that it took part in, -1 = none, */
    int restarts;         /* and how many of them followed a failure */
    bool kept;            /* workers here wait for another round, */
    int recovery;         /* after this one */
    int64_t find_ms;      /* how long to look for who serves the store */
    int64_t join_ms;      /* how long to wait for the others */
    int64_t last_call_ms; /* how long nobody may have come when a set that may still grow begins */
    int64_t heartbeat_ms;
    const char *problem; /* why no worker can be started here; NULL = none */
    /* says who coordinates, and where: coordinates, host and port are not known yet; NULL = they are */
    struct tt__election *election;
} tt__nodes_member;

typedef enum tt__nodes_kind {
    TT__NODES_DECIDES, /* `event` is for the launcher's machine */
    TT__NODES_WAITS,   /* still joining; `text` names the missing nodes */
    TT__NODES_LOOK,    /* a reader of another node asks: answer with tt__nodes_show(look) */
    TT__NODES_SEEN     /* tt__nodes_look() was answered, as far as it will be: `snapshot` */
} tt__nodes_kind;

#define TT__BELIEVED_ALWAYS INT64_MAX        /* it can't be otherwise */
#define TT__BELIEVED_NOT_YET (INT64_MIN / 2) /* nothing was heard since the round came */

typedef struct tt__nodes_event {
    struct tt__nodes_event *next;
    tt__nodes_kind kind;
    tt__event event; /* DECIDES. What it points to belongs to this event until the machine takes it */
    /* DECIDES, TT__ON_ROUND: when it was last known that this node takes part, or one of these */
    int64_t believed_ms;
    char *text; /* WAITS; DECIDES: the event's text */
    int look;   /* LOOK */
    /* SEEN; DECIDES, TT__ON_OVER, if wants_trace: ranks of other nodes. Its receiver may take it */
    tt__snapshot snapshot;
} tt__nodes_event;

void tt__nodes_event_free(tt__nodes_event *event);

#endif
