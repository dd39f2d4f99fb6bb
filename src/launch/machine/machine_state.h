/* The state of the launcher's machine (job_machine.h), and what can be asked of it. */
#ifndef TT_LAUNCH_MACHINE_MACHINE_STATE_H
#define TT_LAUNCH_MACHINE_MACHINE_STATE_H

#include "launch/machine/machine_events.h"

enum { TT__KEEPER_KILL_MS = 6000 }; /* how long the keeper may take to kill all processes */

/* What does not change while the job runs. */
typedef struct tt__machine_job {
    bool alone;    /* the job runs on this node only */
    bool elastic;  /* nodes come and go while the job goes on */
    bool numbered; /* each node has a number of its own, so that none is replaced */
    int max_restarts;
    int64_t settle_ms, grace_ms;
} tt__machine_job;

/* ---- attempt_states.c */

typedef enum tt__attempt_phase {
    TT__NO_ATTEMPT, /* none has begun, or this node looks for the job again */
    TT__RUNNING,
    TT__SETTLING,
    TT__TERMINATING,
    TT__KILLING,
    TT__ATTEMPT_OVER
} tt__attempt_phase;

/* What SETTLING waits for. */
typedef enum tt__settling {
    TT__FOR_REASONS,         /* the other workers end by themselves, and say why */
    TT__FOR_SURVIVORS,       /* workers that survive come to the next round */
    TT__FOR_SURVIVORS_ASKED, /* the same, and they have been asked to */
    TT__FOR_STACKS           /* the stacks of workers that others have waited for in vain are read */
} tt__settling;

typedef struct tt__attempt_state {
    tt__attempt_phase phase;
    int64_t deadline_ms;   /* of the phase; INT64_MAX: none */
    tt__settling settling; /* in SETTLING */
    int64_t late_ms;       /* in SETTLING for survivors: when to print who is missing; 0: printed */
    int64_t look_ms;       /* in RUNNING and SETTLING: when to look at the workers that survive */
    int listeners;         /* how many ranks listened when they were asked for the next round */
    bool regroups;         /* it ends because nodes come or go, not because of a failure */
    bool told_success;     /* a worker here has ended well, and the other nodes know */
    bool kept;             /* when it is over: workers here go on in the next, or when the job is found again */
} tt__attempt_state;

/* ---- membership.c */

typedef enum tt__member_state {
    TT__JOINS,      /* it waits for a round */
    TT__TAKES_PART, /* in a round, or alone */
    TT__LOST_JOB,   /* it looks for the job again when its workers have ended or wait for another round */
    TT__THROUGH     /* no node has workers any more, or none can be heard */
} tt__member_state;

/* What is known of the attempt on all nodes. */
typedef enum tt__verdict_kind {
    TT__UNDECIDED,
    TT__ALL_GONE, /* to the coordinator: no node has workers left, except those that are kept */
    TT__ORDERED,  /* another round is on its way */
    TT__LAST      /* no attempt follows, as the coordinator says */
} tt__verdict_kind;

typedef struct tt__verdict {
    tt__verdict_kind kind;
    bool any_kept; /* workers go on, on some node */
    bool well;     /* all workers have ended well, of their own accord */
} tt__verdict;

typedef struct tt__membership {
    tt__member_state state;
    tt__verdict verdict;
    bool coordinates;      /* this node serves the store, and decides for all */
    tt__counts counts;     /* of the attempt */
    tt__counts next;       /* those of the attempt that begins after DO_NEXT */
    tt__round *round;      /* the attempt's, owned; NULL: there was none, or the job runs on this node alone */
    tt__round *next_round; /* the round of `next`, owned */
} tt__membership;

/* ---- ending.c */

typedef enum tt__ending_stage {
    TT__GOES_ON,
    TT__ENDS, /* no attempt follows: the workers that are kept are told to end */
    TT__DONE  /* nothing of the job is left here */
} tt__ending_stage;

/* What keeps this node from going on; the later, the worse. */
typedef enum tt__damage { TT__UNDAMAGED, TT__NODE_LEFT, TT__UNKILLABLE, TT__KEEPER_LOST } tt__damage;

typedef struct tt__ending {
    tt__ending_stage stage;
    tt__damage damage;
    int own_signal;    /* the first signal to this launcher; 0: none */
    int remote_signal; /* a signal to another launcher, which ends the job; 0: none */
    int agreed_signal; /* the signal for which all ranks have agreed to stop; 0: none */
} tt__ending;

typedef struct tt__machine {
    tt__machine_job job;
    tt__attempt_state attempt;
    tt__membership membership;
    tt__ending ending;
    tt__ledger ledger;
} tt__machine;

/* ---- questions */

/* The number of the attempt, as the nodes count. */
static inline int tt__machine_attempt(const tt__machine *m) {
    return m->membership.round ? m->membership.round->attempt : m->membership.counts.attempt;
}

/* Do workers of the attempt run undisturbed, so that they may still end well? */
static inline bool tt__machine_works(const tt__machine *m) {
    return m->attempt.phase == TT__RUNNING || m->attempt.phase == TT__SETTLING;
}

static inline bool tt__machine_is_done(const tt__machine *m) { return m->ending.stage == TT__DONE; }

/* Return why a failure is not followed by another attempt, although one is left; NULL: it is. */
const char *tt__machine_against_another(const tt__machine *m);
bool tt__machine_has_attempts_left(const tt__machine *m);

/* May there be more than one attempt, whatever becomes of this one? */
bool tt__machine_allows_another(const tt__machine *m);

/* Does this node go on when the attempt is over: in another round, or when it has found the job again? */
bool tt__machine_goes_on(const tt__machine *m);

/* Is the next round waited for, with nothing left to be done here? */
bool tt__machine_waits_for_nodes(const tt__machine *m);

/* Need this node not wait for the others when it is done: is it in no round, or do they go on without it? */
bool tt__machine_leaves_early(const tt__machine *m);

/* When ON_TIME is due at the latest; INT64_MAX: never. */
int64_t tt__machine_due_ms(const tt__machine *m, const tt__survivors *survivors);

/* How the job ends. failed: workers have failed, `first` was the first of them. told: it failed only because the job
 * was told to end, which is not reported as a failure. */
typedef struct tt__conclusion {
    bool failed, told;
    tt__failure first;
    int exit_code;
} tt__conclusion;

tt__conclusion tt__machine_conclude(const tt__machine *m);

#endif
