/* The launchers of a job on several nodes, and their messages through the store that one of them serves.
 *
 * That one, the coordinator, is member 0. The others talk to it alone, so that what each of them sends and reads does
 * not depend on how many there are: it reads what they write, decides who takes part, and repeats to all what concerns
 * all.
 *
 * A thread of the launcher uses the store, so that a slow network never keeps the launcher from its workers; the two
 * exchange events, and a descriptor becomes readable when there are some.
 *
 *   tutti/nodes/count     a count of the members without a number of their own (--node-rank): each adds one, which
 *                         makes its number
 *   tutti/nodes/claim/K   1: number K is taken
 *   tutti/nodes/card/K    member K's description, or why it can't take part
 *   tutti/nodes/list      "0 2 1 ": who has put a card
 *   tutti/nodes/alive/K   there as long as member K's connection is (store/server/renewal.h)
 *   tutti/nodes/beat/K    "BEATS NEWS FIRST": a number that grows as long as launcher K lives, how many events it has
 *                         announced, and the first of them that is still there
 *   tutti/nodes/news/K/I  the I-th of them, from 1 on
 *   tutti/nodes/look/I/K  what the ranks of member K call, asked for by a reader on another node
 *   tutti/nodes/final/K   their last calls
 *   tutti/nodes/left      "0 2 1 ": who has read all that it needs; the coordinator, which serves the store, waits for
 *                         those that it has taken
 *
 * The store is renewed between attempts; these keys and the launchers' connections outlive that
 * (store/server/renewal.h).
 *
 * All but the numbers, the two lists and "alive" are signed with the job secret (store/signed.h) and a context, so that
 * nothing recorded in an earlier job is taken. The context of the coordinator's card is the life of the store. That
 * card has a fresh nonce, the context of the others' cards, of looks and of last calls. The context of what launcher K
 * writes after its card is a nonce from that card. The coordinator's first words to a member, a round or why there is
 * none, name the member's nonce: else the member does not believe them. What is not signed is refused, logged, and read
 * again later. A launcher without the secret may take part only if no card says `demands_it`.
 *
 * A member is lost when its beats have not grown for the heartbeat, or earlier, when its connection has ended.
 * Launchers end together: each announces "done" when it has no worker left, and stays until all have done so or are
 * lost, so that every report names the same first failure.
 *
 * An attempt takes place in a round: members, numbered as nodes, and their ranks. In a fixed set the coordinator
 * composes it when all are there. In a set that changes, it composes it when max_nodes are there, or when min_nodes are
 * there and no other has come for a while; later members are in the next round. If there may be further attempts, each
 * launcher first announces "gone" when it has no worker left of one; when all have done so, the coordinator's launcher,
 * which knows all failures then, orders the next round or announces the end.
 *
 * A launcher that stood still, or could not be reached, may have been given up meanwhile, and its round may be over. So
 * it begins a round, or announces anything, only if it has heard the coordinator within half a heartbeat. Otherwise it
 * waits for two more beats of the coordinator, which would have told it by then.
 *
 * Workers that are kept wait for a round with a higher number than the last one that they were in. A node that has lost
 * the job says the number of its workers' round in its card, so that a new coordinator knows it, too. */
#ifndef TT_LAUNCH_CLUSTER_NODES_H
#define TT_LAUNCH_CLUSTER_NODES_H

#include "launch/job.h"
#include "launch/machine/machine_events.h"

typedef struct tt__nodes tt__nodes;

typedef struct tt__nodes_member {
    const tt__job *job; /* borrowed; fields that change while it runs are not read */
    bool coordinates;   /* it serves the store */
    const char *host;   /* of the store */
    int port;
    tt__counts counts;   /* of the last round that it took part in; attempt -1: none */
    bool kept;           /* workers here wait for another round */
    int64_t find_ms;     /* how long to look for the launcher that serves the store */
    const char *problem; /* why no worker can be started here; NULL = none */
    /* says who coordinates, and where: coordinates, host and port are not known yet; NULL = they are */
    struct tt__election *election;
} tt__nodes_member;

typedef enum tt__nodes_kind {
    TT__NODES_FOR_MACHINE, /* `event` is for the launcher's machine */
    TT__NODES_WAITS,       /* still joining; `text` names the missing nodes */
    TT__NODES_LOOK,        /* a reader of another node asks: answer with tt__nodes_show(look) */
    TT__NODES_SEEN         /* the answers to tt__nodes_look() that came in time: `snapshot` */
} tt__nodes_kind;

#define TT__BELIEVED_ALWAYS INT64_MAX        /* this node surely takes part */
#define TT__BELIEVED_NOT_YET (INT64_MIN / 2) /* nothing was heard since the round came */

typedef struct tt__nodes_event {
    struct tt__nodes_event *next;
    tt__nodes_kind kind;
    tt__event event; /* FOR_MACHINE. What it points to belongs to this event until the machine takes it */
    /* FOR_MACHINE, TT__ON_ROUND: when it was last known that this node takes part, or one of the two values above */
    int64_t believed_ms;
    char *text; /* WAITS; FOR_MACHINE: the event's text */
    int look;   /* LOOK */
    /* SEEN; FOR_MACHINE, TT__ON_OVER, if job->at_end is set: ranks of other nodes. Its receiver may take it */
    tt__snapshot snapshot;
} tt__nodes_event;

/* Start the thread, which joins. The coordinator's server runs already. */
tt_status tt__nodes_start(tt__nodes **out, const tt__nodes_member *member);

/* Tell the others, instead of joining them, why no worker can be started here: member->problem. They end with an
 * error that says so. Blocks until node 0 is told, or on node 0, whose server runs already, until all nodes are; at
 * most timeout_ms or join_ms. Failures are ignored. */
void tt__nodes_tell_problem(const tt__nodes_member *member, int64_t timeout_ms);

/* End the thread, at most a heartbeat from now. NULL is allowed. */
void tt__nodes_free(tt__nodes *nodes);

/* Readable when there is an event. */
int tt__nodes_fd(const tt__nodes *nodes);

/* Take the next event, or NULL; to be freed by tt__nodes_event_free(). */
tt__nodes_event *tt__nodes_next(tt__nodes *nodes);

/* ---- to the others; nothing waits */

/* Leave a note for the ranks under a key of the store. */
void tt__nodes_leave_note(tt__nodes *nodes, const char *key, const char *text);
/* Announce that a worker of this node failed. */
void tt__nodes_announce_end(tt__nodes *nodes, int attempt, int rank, const tt__worker *worker, const char *tail);
/* Announce that no worker of the attempt is left here, except those that wait for another round. */
void tt__nodes_announce_gone(tt__nodes *nodes, const tt__gone *gone);
/* Announce that a worker of this node has ended well: the job waits for no further nodes. */
void tt__nodes_announce_success(tt__nodes *nodes, int attempt);
/* Of the coordinator: order a round with these numbers; TT__ON_ROUND or TT__ON_NO_ROUND follows. If `renewed` is
 * given, that store is renewed first, after all that was told before has been written to it. */
void tt__nodes_order_round(tt__nodes *nodes, const tt__counts *counts, tt_store_server *renewed);
/* Of the coordinator: announce that an attempt is to end, or that none follows. */
void tt__nodes_announce_regroup(tt__nodes *nodes, int attempt, const char *why);
void tt__nodes_announce_last(tt__nodes *nodes, int attempt);
/* Announce that this launcher got a signal. */
void tt__nodes_announce_signal(tt__nodes *nodes, int sig);
/* Ask what the ranks of all other nodes call: SEEN follows, at most timeout_ms later. */
void tt__nodes_look(tt__nodes *nodes, int64_t timeout_ms);
/* Answer LOOK number `id`. */
void tt__nodes_show(tt__nodes *nodes, int id, const tt__snapshot *snapshot);
/* Announce that no worker of this node is left. final: the ranks' last calls, or NULL. TT__ON_OVER follows. */
void tt__nodes_announce_done(tt__nodes *nodes, const tt__snapshot *final);

void tt__nodes_event_free(tt__nodes_event *event);

#endif
