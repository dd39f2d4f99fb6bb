/* What the parts of the launcher share:
 *
 *   launcher.c           the loop, its beginning and its end
 *   launcher_events.c    signals, messages of the keeper and of other nodes, as events for the machine
 *   launcher_actions.c   carries out what the machine decides (machine/job_machine.h)
 *   launcher_nodes.c     the other nodes: how they are met, and what they and readers are told
 *   launcher_watchdog.c  workers that crash or hang
 *   launcher_report.c    reports of failures, answers to health checks
 *
 * Each calls those below it. Nothing here decides what is started or ended: that is the machine's. */
#ifndef TT_LAUNCH_LAUNCHER_PARTS_H
#define TT_LAUNCH_LAUNCHER_PARTS_H

#include "launch/cluster/nodes.h"
#include "launch/job.h"
#include "launch/local/follow.h"
#include "launch/local/health.h"
#include "launch/local/keeper.h"
#include "launch/local/report.h"
#include "launch/local/signals.h"
#include "launch/local/streams.h"
#include "launch/local/watch.h"
#include "launch/machine/job_machine.h"

enum { TT__MAX_SPARED = 64, TT__MAX_EARLIER = 32 };

typedef struct tt__launcher_state {
    tt__job *job;
    tt__machine machine;
    tt__event follow_up; /* the machine's next event, once its actions are carried out; TT__ON_TIME: none */

    tt__streams streams;
    int log;            /* where this process's log goes, for `streams`; -1: to stderr */
    tt__follow *follow; /* shows what the workers write to files; NULL: nothing */
    tt__keeper keeper;
    tt__worker *workers;    /* (job->workers) */
    long long memory_kills; /* how many the kernel made in our control group, as last seen */
    int *pipe_ends;         /* (job->workers) the workers' ends of their stderr, until the keeper gets them; -1: none */
    pid_t spared[TT__MAX_SPARED]; /* children from before the job, not to be killed: a shell may have left some to us */
    size_t spared_count;

    struct pollfd *fds;
    int64_t look_ms; /* when job->look() is due */
    tt__signals signals;
    int64_t signal_ms; /* when the first one came */
    int signals_taken; /* how many have come */

    tt_store_server *server;       /* if this node serves the store */
    struct tt__election *election; /* for job->etcd: who serves it */
    tt_store *store;               /* of a job on one node: our own connection, made when the first worker ends */
    bool store_failed;
    tt__nodes *nodes; /* of a job on several nodes; NULL while the job is looked for */

    tt__watch *watch;
    struct tt__watchdog *watchdog; /* of launcher_watchdog.c */
    bool looking;                  /* readers wait for `remote` */
    tt__snapshot remote;           /* the calls of other nodes' ranks, as last seen */

    tt__moment started;
    tt_status failure;              /* why the job can't go on here; its text is this thread's last error */
    char why[TT__ATTEMPT_TEXT];     /* why the last attempt ended */
    char *earlier[TT__MAX_EARLIER]; /* how attempt k failed, at k % TT__MAX_EARLIER; allocated */
} tt__launcher_state;

/* ---- launcher_events.c */

void tt__launcher_take_signals(tt__launcher_state *l);
void tt__launcher_take_keeper_messages(tt__launcher_state *l);
void tt__launcher_take_node_events(tt__launcher_state *l);
void tt__launcher_take_time(tt__launcher_state *l);

/* ---- launcher_actions.c */

/* Give the machine an event, and carry out what it decides. */
void tt__launcher_step(tt__launcher_state *l, tt__event *event);

void tt__launcher_close_pipes(tt__launcher_state *l);

/* Count the workers that survive the loss of others. */
tt__survivors tt__launcher_survivors(const tt__launcher_state *l);

/* Does worker `i` wait for the next round, or did it when it ended? */
bool tt__launcher_waits(const tt__launcher_state *l, int i);

/* Return the signal for which worker `i`, which has ended, has agreed to stop with the others; 0: it has not. */
int tt__launcher_agreed_stop(const tt__launcher_state *l, int i);

/* ---- launcher_report.c */

void tt__launcher_report_lost(tt__launcher_state *l);
void tt__launcher_report_attempt(tt__launcher_state *l, tt__attempt_cause cause, bool recovers);

/* Report what the job has come to. Returns its exit code. */
int tt__launcher_report_end(tt__launcher_state *l);

/* tt__health_look; `user` is the launcher. */
bool tt__launcher_health(void *user, char body[TT__HEALTH_BODY]);

/* ---- launcher_nodes.c */

/* Serve the store, if that is this node's part. */
tt_status tt__launcher_serve_store(tt__job *job, tt_store_server **server);

tt_status tt__launcher_join(tt__launcher_state *l);

/* For job->etcd: take the result of the election, when a round begins. */
void tt__launcher_take_election(tt__launcher_state *l);

/* Look for the job again. */
tt_status tt__launcher_rejoin(tt__launcher_state *l);

/* Write how worker `i` ended under tt__ended_key(), for the errors of ranks that waited for it; if it failed, announce
 * it to the other launchers. Best effort. */
void tt__launcher_publish_end(tt__launcher_state *l, int i);

/* Note in the store that the ranks of a node that is gone have ended, as its own launcher can't, for ranks that wait
 * for them while they join. */
void tt__launcher_publish_end_of_node(tt__launcher_state *l, int node);

/* Announce that no worker is left here; ON_OVER follows when all nodes have done so, or are lost. */
void tt__launcher_announce_done(tt__launcher_state *l);

/* Open l->watch, with the callbacks that fill in readers' answers. */
tt_status tt__launcher_watch(tt__launcher_state *l);

/* ---- launcher_watchdog.c: workers that crash or hang */

enum { TT__READINGS = 4, TT__WATCHDOG_FDS = TT__READINGS + 2 };

tt_status tt__watchdog_open(tt__launcher_state *l);
/* Return how many descriptors the watchdog needs for a job, without those of timers. Let timers of the workers'
 * processes take part of `spare` descriptors, which nothing else needs. */
int tt__watchdog_descriptors(const tt__job *job);
void tt__watchdog_spare(tt__launcher_state *l, int spare);

void tt__watchdog_free(tt__launcher_state *l); /* NULL watchdog is allowed */

/* Fill in at most TT__WATCHDOG_FDS entries for poll(2), return how many; *timeout_ms is lowered to when
 * tt__watchdog_serve() must be called at the latest. */
int tt__watchdog_poll(tt__launcher_state *l, struct pollfd *fds, int *timeout_ms);

/* Do what can be done without waiting. */
void tt__watchdog_serve(tt__launcher_state *l);

/* The watch's callbacks: `user` is the launcher. */
void tt__watchdog_crashed(void *user, int i, pid_t pid, int caller, const tt__job_crash *crash);

bool tt__watchdog_timed(void *user, pid_t pid, int caller, int memory);

/* Begin to read the stacks of workers that make no call while others have waited for them in vain, once an attempt.
 * False: there is nothing to read; else TT__ON_IDLE_READ follows. */
bool tt__watchdog_begin_idle_reading(tt__launcher_state *l);

/* Take the end of that reading. False: it has not ended, or the end was taken before. */
bool tt__watchdog_take_idle_end(tt__launcher_state *l);

/* Worker `i` has ended: if it is the first that failed, fill in its account. */
void tt__watchdog_ended(tt__launcher_state *l, int i);

/* Free what is known of worker `i`, whose number another may get. */
void tt__watchdog_forget(tt__launcher_state *l, int i);

/* No process of the attempt is left: forget torchrun's timers, whose pipe is made anew with the next workers. */
void tt__watchdog_forget_all(tt__launcher_state *l);

#endif
