/* What the files of a replica share: replica.c, and below it replica_hear.c, replica_requests.c, replica_says.c. */
#ifndef TT_STORE_REPLICA_OWN_H
#define TT_STORE_REPLICA_OWN_H

#include "store/replica.h"
#include "store/replica_code.h"
#include "store/replica_io.h"
#include "store/replica_peers.h"
#include "store/replica_state.h"

/* What the store may hold: it must fit into one message. */
#define TT__REPLICA_MAX_BYTES ((size_t)48 << 20)

/* Requests, in order. */
typedef struct tt__replica_queue {
    struct tt__replica_pending *first, *last;
} tt__replica_queue;

/* What it has said to who runs it (replica_says.c). */
enum { TT__REPLICA_SAYS_SIZE = 1600 };

typedef struct tt__replica_says {
    uv_timer_t timer;
    tt_log_level level;
    char text[TT__REPLICA_SAYS_SIZE]; /* what is to be said, since when; "": nothing */
    int64_t since_ms, said_ms;
    bool waited; /* it has said that something is missing */
} tt__replica_says;

struct tt__replica {
    tt__replica_place place;
    int member;
    char list[TT__REPLICA_LIST_SIZE]; /* the place as text */
    uint64_t id, cluster;             /* cluster 0: new */
    uint64_t begun[TT__REPLICAS_MAX]; /* with which ids the cluster began; 0: before this replica came */
    char failed[200];                 /* why it serves nobody any more; "": it does */

    tt__connections *all;
    tt__store_gate gate;
    tt__replica_state state;
    tt__bytes answer; /* of the entry that was applied last */

    const tt__raft *lib;
    struct raft raft;
    struct raft_fsm fsm;
    tt__replica_io io;
    size_t applied_bytes; /* of entries since the last snapshot */
    bool handles, started, leads;
    int64_t heard_ms; /* when it joined, or libraft last heard anything */
    bool in;          /* a voter, which has told so */
    bool lost;        /* it is to start over */
    struct raft_change change;
    bool changing;

    /* requests (replica_requests.c) */
    tt__replica_queue next_reads, reads, answered;
    struct raft_barrier barrier;
    bool barrier_runs;
    bool confirms; /* a barrier is to come, also if nobody reads: what those that led before have left is agreed on */

    /* the other members */
    tt__replica_peers peers;
    bool peers_made;
    uv_async_t news;
    tt__store_session *incoming[TT__REPLICAS_MAX]; /* over which a member speaks */
    uint64_t incoming_id[TT__REPLICAS_MAX];
    char refused[TT__REPLICAS_MAX][160]; /* the list for which a member was refused last */
    tt__replica_says says;
    unsigned told[TT__REPLICAS_MAX]; /* on which of its connections it was told to begin, or to come in */
};

/* A member says who it is, and all else (replica_hear.c): the cluster that this one is to join; 0: none. */
void tt__replica_hear_hello(tt__replica *r, tt__store_session *session, tt__span words);
uint64_t tt__replica_hear_words(tt__replica *r, tt__store_session *session, tt__span words);

/* Carry out REPLICA_DO, whose answer comes later, and WAIT likewise. */
void tt__replica_do(tt__replica *r, tt__store_session *session, uint64_t client, uint64_t number, tt__span request);
void tt__replica_wait(tt__replica *r, tt__store_session *session, tt__span request);
void tt__replica_forget(tt__store_session *session); /* its client is gone */

/* Give the answers that are there, and begin what waits; not from a callback of libraft. */
void tt__replica_go_on(tt__replica *r);

/* This replica leads no more: send away those that wait for a key. */
void tt__replica_send_away(tt__replica *r);

/* Say from now on what is missing; the loop closes the timer. */
void tt__replica_says_begin(tt__replica *r, uv_loop_t *loop);

#endif
