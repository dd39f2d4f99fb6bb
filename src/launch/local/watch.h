/* The job's socket (net/job/job_socket.h), as its launcher serves it: ranks hand in their flight recorders, readers get
 * them.
 *
 * What a rank handed in is kept open; when the rank closes its connection, by its end or because it left its job's
 * groups, the recorder is copied and the rank's memory released, so that nothing but a recorder outlives a rank. */
#ifndef TT_LAUNCH_LOCAL_WATCH_H
#define TT_LAUNCH_LOCAL_WATCH_H

#include "launch/local/snapshot.h"

/* Callbacks: what readers get of the job, and what ranks tell its launcher. */
typedef struct tt__watch_job {
    void *user;
    void (*info)(void *user, tt__job_info *info);
    /* Describe the i-th rank of this host; the watch itself adds its recorder. */
    void (*local)(void *user, int i, tt__job_rank *rank);
    /* Ranks of other hosts: how many are known, and one of them; returns its recorder's descriptor, the job's own, or
     * -1. */
    int (*remotes)(void *user);
    int (*remote)(void *user, int i, tt__job_rank *rank);
    /* A reader asks. False: it is answered later, by tt__watch_answer(). */
    bool (*asked)(void *user);
    /* Process `pid`, this host's i-th rank, crashes; it ends when tt__watch_let_end(caller) is called, or soon by
     * itself. */
    void (*crashed)(void *user, int i, pid_t pid, int caller, const tt__job_crash *crash);
    /* A process hands in the memory of its timers, which the callback takes over. At the end of the connection it is
     * called again, with memory -1. False: refused, and the connection ends. */
    bool (*timed)(void *user, pid_t pid, int caller, int memory);
} tt__watch_job;

typedef struct tt__watch tt__watch;

/* Open the watch of `n` ranks, 0 .. n-1 unless tt__watch_first_rank() says otherwise, on a socket of that name. */
tt_status tt__watch_open(tt__watch **out, int n, const tt__watch_job *job, const char *name);
void tt__watch_free(tt__watch *watch);

void tt__watch_first_rank(tt__watch *watch, int first_rank);

/* Forget what the ranks have handed in, and take nothing more from connections made so far: other ranks with their
 * numbers follow. Readers stay. */
void tt__watch_renew(tt__watch *watch);

/* Readable when tt__watch_serve() has something to do. */
int tt__watch_fd(const tt__watch *watch);

/* Do what can be done without waiting. */
void tt__watch_serve(tt__watch *watch);

/* Answer the readers that wait. */
void tt__watch_answer(tt__watch *watch);

/* Let the rank that crashed end. */
void tt__watch_let_end(tt__watch *watch, int caller);

/* How many ranks have ever begun to listen for rounds. */
int tt__watch_listeners(const tt__watch *watch);

/* Tell this host's i-th rank of a round: TT__JOB_ROUND, or once TT__JOB_WANTED or TT__JOB_NO_ROUND. False: it does not
 * listen, or was told before. */
bool tt__watch_tell_round(tt__watch *watch, int i, tt__job_kind kind, const tt__job_round *round);

/* Return the recorder of this host's i-th rank, as the rank writes it, *size bytes; NULL: it has none, or has ended.
 * Valid until the watch is served. */
const void *tt__watch_recorder(tt__watch *watch, int i, size_t *size);

/* The same, also when the rank has ended or left: as it was then. */
const void *tt__watch_last_recorder(tt__watch *watch, int i, size_t *size);

/* Make the snapshot that a reader would get. */
tt_status tt__watch_snapshot(const tt__watch *watch, tt__snapshot *snapshot);

/* Make one of this host's i-th rank alone. */
tt_status tt__watch_snapshot_of(const tt__watch *watch, int i, tt__snapshot *snapshot);

#endif
