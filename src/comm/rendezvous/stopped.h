/* Ranks that a signal stopped before they left a card. Only their launcher knows their processes. So while this rank
 * waits, it asks the launcher for the state of all ranks, by the job's socket (net/job/job_socket.h). */
#ifndef TT_COMM_RENDEZVOUS_STOPPED_H
#define TT_COMM_RENDEZVOUS_STOPPED_H

#include <tutti/base.h>

#include <sys/types.h>

typedef struct tt__stopped_rank {
    int64_t since_ms;  /* when it was first seen stopped; 0: it runs, has ended, or is unknown */
    uint64_t activity; /* tt__proc_activity(), from its launcher; unchanged: it has not run */
    bool now;          /* stopped in the answer under way */
    bool has_run;      /* it has run since the answer before */
    pid_t pid;         /* 0: on another host */
    char hostname[64];
} tt__stopped_rank;

typedef struct tt__stopped {
    int world;
    int64_t patience_ms;        /* how long a rank may be stopped */
    int64_t interval_ms;        /* between questions */
    int socket;                 /* to the launcher; -1: none */
    bool asked;                 /* the launcher was asked and has not answered yet */
    int64_t asked_ms, heard_ms; /* when; 0: never */
    int node;                   /* this rank's, as the launcher says */
    tt__stopped_rank *ranks;    /* (world) */
} tt__stopped;

/* Begin to watch the ranks of a job of `world`. TT_ERR_MEMORY. */
tt_status tt__stopped_begin(tt__stopped *stopped, int world, int64_t heartbeat_ms);
void tt__stopped_end(tt__stopped *stopped);

/* Take what the launcher has answered, and ask it again if that is due; never waits. To be called every interval_ms. */
void tt__stopped_look(tt__stopped *stopped);

/* Has rank r been stopped for most of the heartbeat? Then TT_ERR_PEER, recorded. */
tt_status tt__stopped_check(const tt__stopped *stopped, int r);

#endif
