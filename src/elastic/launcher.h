/* What the parts of the launcher share: launcher.c, the loop, and the phases in which an attempt ends;
 * launcher_phase.c, the steps between them; launcher_attempt.c, the step from one attempt to the next;
 * launcher_another.c, whether there is one;
 * launcher_first.c, who failed first; launcher_recovery.c, workers that survive; launcher_meet.c, the way to the
 * others; launcher_nodes.c, the other nodes of the job, and readers that ask for the ranks' calls; launcher_look.c,
 * what is shown of a running job. The first calls the others. */
#ifndef TT_ELASTIC_LAUNCHER_H
#define TT_ELASTIC_LAUNCHER_H

#include "elastic/follow.h"
#include "elastic/job.h"
#include "elastic/keeper.h"
#include "elastic/nodes.h"
#include "elastic/report.h"
#include "elastic/streams.h"
#include "elastic/watch.h"

enum { TT__MAX_SPARED = 64, TT__KEEPER_KILL_MS = 6000, TT__MAX_EARLIER = 32 };

typedef enum tt__launcher_phase {
    TT__JOINING,
    TT__RUNNING,
    TT__SETTLING,
    TT__TERMINATING,
    TT__KILLING,
    TT__GONE
} tt__launcher_phase;

typedef struct tt__launcher_state {
    tt__job *job;
    tt__streams streams;
    int log;            /* where this process's log goes, for `streams`; -1 = to stderr */
    tt__follow *follow; /* shows what the workers write to files; NULL: nothing */
    tt__keeper keeper;
    tt_store_server *server;       /* on node 0 */
    struct tt__election *election; /* for job->etcd: who that is */
    tt_store *store;               /* of a job on one node: our own connection, made when the first worker ends */
    bool store_failed;
    tt__worker *workers;    /* (job->workers) */
    long long memory_kills; /* by the kernel, in our control group, as last seen */
    struct pollfd *fds;
    int *pipe_ends; /* (job->workers) the workers' ends of their stderr, until the keeper gets them; -1 = none */
    int ended;      /* workers */
    tt__launcher_phase phase;
    int64_t deadline_ms; /* of the phase; INT64_MAX = none */
    int64_t look_ms;     /* when job->look() is due */
    int signals;         /* signalfd */
    bool has_terminal;   /* when it began, its session had one */
    int got_signal;      /* the first that came, 0 = none, */
    int64_t signal_ms;   /* and when */
    int signals_taken;   /* how many */
    bool done;           /* nothing of the job is left here */
    bool keeper_lost;
    tt_status failure; /* why nothing was started */
    tt__moment started;
    tt__watch *watch;
    struct tt__watchdog *watchdog; /* launcher_watchdog.h */
    pid_t spared[TT__MAX_SPARED];  /* children this process had before: a shell may have left some to us */
    size_t spared_count;
    bool stuck;                     /* processes of this attempt can't be killed */
    char *earlier[TT__MAX_EARLIER]; /* how attempt k failed, at k % TT__MAX_EARLIER; allocated */

    /* For a job on several nodes. */
    tt__nodes *nodes;
    tt__round *round;               /* the attempt's; NULL: before the first */
    tt__nodes_event *others, *lost; /* ENDED and LOST events of this attempt, in no order */
    int node_signal;                /* another launcher got it, which ends the job; 0: none has */
    int64_t lost_ns;                /* when the first of `lost` was heard of, on this machine's clock */
    bool node_left;                 /* another launcher won't go on, which ends the job */
    bool regroups;                  /* this attempt ends because nodes come or go, not because of a failure */
    bool rejoins;                   /* this node has lost the job, and looks for it again, when its workers have ended
                                       or wait for another round */
    /* no attempt follows, or no node has workers of this one, as the coordinator says */
    bool is_last, all_gone;
    bool all_well;              /* all workers of this attempt have ended well, of their own accord, likewise */
    bool began;                 /* an attempt has */
    bool ordered;               /* the next round has been ordered */
    bool ending;                /* no attempt follows: the workers that are kept are told to end */
    bool kept;                  /* workers here go on in the next attempt, or when the job is found again, */
    bool any_kept;              /* or on any node, as the coordinator says */
    int64_t survivors_ms;       /* when to look at those that survive; */
    bool awaits_survivors;      /* SETTLING has the grace period, for those that are on their way to the next round */
    int64_t tell_late_ms;       /* when to say for whom it waits; 0: it is said */
    bool wants_round;           /* ranks are asked for the next round, those that are still joining as well, */
    int listened;               /* when so many had begun to listen: tt__watch_listeners() */
    int stopped;                /* the signal for which the ranks have agreed to stop; 0: none */
    char why[TT__ATTEMPT_TEXT]; /* the last attempt ended */
    bool told_success;          /* a worker here has ended well, and the others know */
    bool looking, over;         /* a look is under way; no node has workers any more */
    tt__snapshot remote;        /* ranks of other nodes, as last seen */
} tt__launcher_state;

/* ---- launcher_phase.c */

/* Order the keeper to start the workers: job->first_rank, world and attempt are known, and pipe_ends is there. */
void tt__launcher_begin(tt__launcher_state *l);
void tt__launcher_close_pipes(tt__launcher_state *l);

void tt__launcher_enter(tt__launcher_state *l, tt__launcher_phase phase, int64_t timeout_ms);

/* Note that the live workers have got `sig`. */
void tt__launcher_note_signal(tt__launcher_state *l, int sig);

/* Send `sig` to what is still there: the workers, or processes they left. */
void tt__launcher_terminate(tt__launcher_state *l, int sig);

/* Order the keeper to kill every descendant. */
void tt__launcher_kill(tt__launcher_state *l);

/* ---- launcher_first.c */

/* Find the first failure on all nodes; false: there was none. *own: its index in l->workers, or -1. tail:
 * TT__TAIL_BYTES + 1 bytes. */
bool tt__launcher_first(const tt__launcher_state *l, tt__first *first, int *own, char *tail);

void tt__launcher_free_events(tt__nodes_event *list);

/* ---- launcher_recovery.c */

/* This node's workers that run: how many, how many of them survive the loss of others, how many wait for the next
 * round; and a rank that one of these blames, -1: none. starting: how many do not run yet. */
typedef struct tt__survivors {
    int living, able, waiting, blamed, starting;
} tt__survivors;

tt__survivors tt__launcher_survivors(const tt__launcher_state *l);

/* Can all that run go on while others are started? */
bool tt__launcher_can_recover(const tt__launcher_state *l);

/* Does worker `i` wait for the next round, or did it when it ended? */
bool tt__launcher_waits(const tt__launcher_state *l, int i);

/* Kill those that don't wait for the next round, if they are rank `rank` (-1: any). */
void tt__launcher_kill_late(tt__launcher_state *l, int rank);

/* Say who they are. */
void tt__launcher_tell_late(tt__launcher_state *l);

/* Return the signal for which worker `i`, which has ended, has agreed to stop with the others; 0: it has not. */
int tt__launcher_agreed_stop(const tt__launcher_state *l, int i);

/* Tell the workers here that are kept that the round job->recovery begins, where each has its new rank. */
void tt__launcher_tell_round(tt__launcher_state *l);

/* Ask those that have not been asked for the next round, while all is well for them. */
void tt__launcher_want_round(tt__launcher_state *l);

/* Tell those that wait for the next round, and have not been told, that it won't come. */
void tt__launcher_deny_round(tt__launcher_state *l);

/* ---- launcher_another.c */

/* Return what ends the job, or this node's part in it, without regard to how the attempt goes on elsewhere; or NULL. */
const char *tt__launcher_must_end(const tt__launcher_state *l);

/* Return why a failure is not followed by another attempt, although one is left; NULL: it is. */
const char *tt__launcher_against_another(const tt__launcher_state *l);
bool tt__launcher_has_attempts_left(const tt__launcher_state *l);

/* Did the attempt fail by itself, rather than because a node was lost or the workers were told to end? Where nobody
 * replaces it, the loss of a node is a failure, too. */
bool tt__launcher_failed_by_itself(const tt__launcher_state *l);

/* Do workers go on, here or on any node, when the attempt is over everywhere? */
bool tt__launcher_any_goes_on(const tt__launcher_state *l);

/* Has the attempt failed? It has, too, if the ranks want another round though none is lost: their network was cut for a
 * moment, say. */
bool tt__launcher_attempt_failed(const tt__launcher_state *l);

/* Does another round follow when no worker of this one is left, as far as is known here? None where all is well. */
bool tt__launcher_another_follows(const tt__launcher_state *l);

/* ---- launcher_attempt.c */

/* Look at the workers that survive, if that is due, or whether they still are waited for; *timeout_ms, of poll(2), is
 * lowered to when it is. */
void tt__launcher_look_at_survivors(tt__launcher_state *l);
void tt__launcher_survivors_due(tt__launcher_state *l, int *timeout_ms);

/* A worker has ended as all have agreed to: the others have the grace period. */
void tt__launcher_settle_stopped(tt__launcher_state *l);

/* The deadline of SETTLING is over. */
void tt__launcher_settled(tt__launcher_state *l);

/* The number of the attempt, as the nodes count. */
static inline int tt__launcher_attempt(const tt__launcher_state *l) {
    return l->round ? l->round->attempt : l->job->attempt;
}

/* A worker has failed, here or on another node: SETTLING begins, if it has not. The others have the settle period to
 * end by themselves and say why. Where all are started again it ends as soon as it is clear who was the first. */
void tt__launcher_settle(tt__launcher_state *l);

/* No process of the attempt is left here, except for those that can't be killed. */
void tt__launcher_attempt_over(tt__launcher_state *l, int unkillable);

/* When no node has workers of the attempt any more: begin the next, or be done. Nothing happens until that is known. */
void tt__launcher_go_on(tt__launcher_state *l);

/* Do nodes come and go while the job goes on? */
static inline bool tt__launcher_is_elastic(const tt__launcher_state *l) {
    return l->job->min_nodes < l->job->max_nodes;
}

/* Can a node that is lost be done without, or be replaced by one that comes? */
static inline bool tt__launcher_replaces(const tt__launcher_state *l) {
    return l->job->number < 0 && (tt__launcher_is_elastic(l) || l->job->max_restarts > 0);
}

/* May there be more than one attempt? */
static inline bool tt__launcher_may_go_on(const tt__launcher_state *l) {
    return l->job->max_restarts > 0 || tt__launcher_is_elastic(l);
}

/* A node is lost that may be: end this attempt. */
void tt__launcher_change(tt__launcher_state *l);

/* The coordinator is lost, or has lost this node: end what is here, but for workers that go on when the job is found
 * again. */
void tt__launcher_lose_job(tt__launcher_state *l);

/* The same because nodes come or go. */
void tt__launcher_regroup(tt__launcher_state *l, const char *why);

/* Begin the round. Nothing of an earlier one is left here. Takes `round`. */
void tt__launcher_take_round(tt__launcher_state *l, tt__round *round);

/* Report the nodes that are lost, in a line each. */
void tt__launcher_report_lost(tt__launcher_state *l);

/* After the report of the last attempt: report how many there were and how each before it failed, and why there is no
 * other. */
void tt__launcher_report_attempts(tt__launcher_state *l);
void tt__launcher_forget_attempts(tt__launcher_state *l);

/* ---- launcher_meet.c */

/* Serve the store, if that is this node's part. */
tt_status tt__launcher_serve_store(tt__job *job, tt_store_server **server);

tt_status tt__launcher_join(tt__launcher_state *l);

/* For job->etcd: prepare, before the keeper is forked; take what was found when a round begins. */
tt_status tt__launcher_prepare_election(tt__launcher_state *l);
void tt__launcher_take_election(tt__launcher_state *l);

/* Connect to the store that this node serves, if that has not been done; NULL: it does not answer. */
tt_store *tt__launcher_own_store(tt__launcher_state *l);

/* Leave what is left of the job, and look for it again. */
void tt__launcher_rejoin(tt__launcher_state *l);
/* ---- launcher_nodes.c */

void tt__launcher_take_node_events(tt__launcher_state *l);

/* Write how worker `i` ended under tt__ended_key(), for the errors of ranks that waited for it; if it failed, announce
 * it to the other launchers. Best effort. */
void tt__launcher_publish_end(tt__launcher_state *l, int i);

/* Announce that no worker is left here, and wait until that is so everywhere. */
void tt__launcher_announce_done(tt__launcher_state *l);

/* The callbacks that fill in readers' answers. */
tt_status tt__launcher_watch(tt__launcher_state *l);

void tt__launcher_leave(tt__launcher_state *l);

/* ---- launcher_look.c */

/* Call job->look() if that is due. */
void tt__launcher_look(tt__launcher_state *l);

/* Refuse to begin with too few descriptors: the store, whose event loop aborts without, and each worker's connections
 * need some. *spare: how many there are beyond. */
tt_status tt__launcher_check_descriptors(const tt__job *job, int *spare);

#endif
