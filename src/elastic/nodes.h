/* The launchers of a job on several nodes, and their messages through the store that node 0 serves.
 *
 * A thread of the launcher uses the store, so that a slow network never keeps the launcher from its workers; the two
 * exchange events, and a descriptor becomes readable when there are some.
 *
 *   tutti/nodes/claim/K   1: node K is taken
 *   tutti/nodes/card/K    its description, or why it can't take part
 *   tutti/nodes/beat/K    "BEATS NEWS": a number that grows as long as launcher K lives, and how many events it has
 *                         announced
 *   tutti/nodes/news/K/I  the I-th of them, from 1 on
 *   tutti/nodes/look/I/K  what the ranks of node K call, asked for by a reader on another node
 *   tutti/nodes/final/K   their last calls
 *   tutti/nodes/left      how many have read all that they need; node 0, which serves the store, waits for them
 *
 * Node 0's store is renewed between attempts; these keys and the launchers' connections outlive that
 * (store/renewal.h).
 *
 * All but the claims are signed with the job secret (store/signed.h); the context of what launcher K writes after its
 * card is a nonce from that card, so that nothing recorded in an earlier job is taken. What is not signed is refused,
 * logged, and read again later; only with `demands_it` off a node may do without a secret.
 *
 * A launcher whose number does not grow for the heartbeat is lost. Launchers end together: each announces "done" when
 * it has no worker left, and stays until all have done so or are lost, so that every report names the same first
 * failure.
 *
 * Where workers may be started again (max_restarts), each first announces "gone" when it has none left of an attempt.
 * When all have done so, all know the same failures and decide alike; the next attempt begins when node 0, with a fresh
 * store, announces "again". A launcher that won't go on announces "done", and the others end, too. */
#ifndef TT_ELASTIC_NODES_H
#define TT_ELASTIC_NODES_H

#include "elastic/report.h"
#include "elastic/snapshot.h"

typedef struct tt__nodes tt__nodes;

typedef struct tt__nodes_member {
    int node, nodes;  /* this one, of how many */
    const char *host; /* of the store */
    int port;
    const char *run_id;
    int workers;      /* on this node */
    bool wants_trace; /* what all ranks did last */
    bool has_secret;  /* of the job's, */
    bool demands_it;  /* and does not go on with a node that has none */
    int max_restarts; /* the same on all nodes */
    int64_t join_ms;  /* how long to wait for the others */
    int64_t heartbeat_ms;
    const char *problem; /* why no worker can be started here; NULL = none */
} tt__nodes_member;

typedef enum tt__nodes_kind {
    TT__NODES_JOINED, /* all are here: world, first_rank are known */
    TT__NODES_FAILED, /* they never will be; text says why */
    TT__NODES_ENDED,  /* a worker of another node failed in attempt `value`: worker, rank, node, text (the tail of its
                         stderr) */
    TT__NODES_SIGNAL, /* launcher `node` got signal `value` and ends its workers */
    TT__NODES_LOST,   /* launcher `node` no longer responds; text says how that was seen */
    TT__NODES_LOOK,   /* a reader of another node wants to know: tt__nodes_show(value) */
    TT__NODES_SEEN,   /* tt__nodes_look() was answered, as far as it will be: snapshot */
    TT__NODES_WAITS,  /* text: for whom, after a while of joining */
    TT__NODES_GONE,   /* no node has workers of attempt `value` any more, */
    TT__NODES_AGAIN,  /* and node 0 says: attempt `value` begins */
    TT__NODES_DONE,   /* where there may be further attempts: launcher `node` is done */
    TT__NODES_OVER    /* all are done or lost. snapshot: if wants_trace */
} tt__nodes_kind;

typedef struct tt__nodes_event {
    struct tt__nodes_event *next;
    tt__nodes_kind kind;
    int node, rank, value;
    char *text;            /* or NULL */
    tt__worker worker;     /* its message belongs to the event until it is taken */
    tt__snapshot snapshot; /* ranks of other nodes, likewise */
} tt__nodes_event;

/* Start the thread, which joins. Node 0's server runs already. */
tt_status tt__nodes_start(tt__nodes **out, const tt__nodes_member *member);

/* Tell the others, instead of joining them, why no worker can be started here: member->problem. They end with an error
 * that says so. Blocks until node 0 is told, or, on node 0, whose server runs already, until all are; at most
 * timeout_ms or join_ms. What fails is not told. */
void tt__nodes_tell_problem(const tt__nodes_member *member, int64_t timeout_ms);

/* End the thread, at most a heartbeat from now. NULL is allowed. */
void tt__nodes_free(tt__nodes *nodes);

/* Readable when there is an event. */
int tt__nodes_fd(const tt__nodes *nodes);

/* Take the next event, or NULL; to be freed by tt__nodes_event_free(). */
tt__nodes_event *tt__nodes_next(tt__nodes *nodes);
void tt__nodes_event_free(tt__nodes_event *event);

/* After JOINED. */
int tt__nodes_world(const tt__nodes *nodes);
int tt__nodes_first_rank(const tt__nodes *nodes, int node);
const char *tt__nodes_hostname(const tt__nodes *nodes, int node);

/* Is a trace wanted? tt__nodes_announce_done() then needs the ranks' last calls. */
bool tt__nodes_want_final(const tt__nodes *nodes);

/* ---- to the others; nothing waits */

/* Set a key of the store. */
void tt__nodes_set(tt__nodes *nodes, const char *key, const char *text);
/* Announce that a worker of this node failed. */
void tt__nodes_announce_end(tt__nodes *nodes, int attempt, int rank, const tt__worker *worker, const char *tail);
/* Announce that no worker of the attempt is left here: GONE follows. On node 0: that the next one begins. */
void tt__nodes_announce_gone(tt__nodes *nodes, int attempt);
void tt__nodes_announce_again(tt__nodes *nodes, int attempt);
void tt__nodes_announce_signal(tt__nodes *nodes, int sig);
/* Ask what the ranks of all other nodes call: SEEN follows, at most timeout_ms later. */
void tt__nodes_look(tt__nodes *nodes, int64_t timeout_ms);
/* Answer LOOK number `id`. */
void tt__nodes_show(tt__nodes *nodes, int id, const tt__snapshot *snapshot);
/* Announce that no worker of this node is left. `final` may be NULL. OVER follows. */
void tt__nodes_announce_done(tt__nodes *nodes, const tt__snapshot *final);

#endif
