/* What the machine is told, and what it wants to be done. */
#ifndef TT_LAUNCH_MACHINE_MACHINE_EVENTS_H
#define TT_LAUNCH_MACHINE_MACHINE_EVENTS_H

#include "launch/machine/failures.h"

/* Who takes part in an attempt. */
typedef struct tt__round_node {
    int member, workers, first_rank;
    uint64_t role; /* a hash of its --role */
    char hostname[64];
} tt__round_node;

typedef struct tt__round {
    int attempt, restarts; /* restarts: attempts that followed a failure */
    int recovery;          /* not 0: ranks that were kept go on, and this is the number of their round */
    int own;               /* this node's number */
    bool wants_trace;      /* a node does: tt__nodes_announce_done() then needs the ranks' last calls */
    int n, world;
    int first_role_rank, role_world; /* of this node's role: the ranks on earlier nodes, and on all */
    tt__round_node of[];             /* (n) */
} tt__round;

/* Numbers that count on from one attempt to the next. */
typedef struct tt__counts {
    int attempt;  /* how often all workers were started again, as the workers here know it */
    int restarts; /* how often some were, because one had failed */
    int recovery; /* how often some went on while others were started */
} tt__counts;

typedef enum tt__event_kind {
    TT__ON_TIME,  /* time has passed */
    TT__ON_BEGIN, /* the job, which runs on this node alone, begins */
    TT__ON_NEXT,  /* the actions before DO_NEXT have been carried out */

    /* Of this node's workers and their keeper. */
    TT__ON_ENDED,       /* worker `ended` has ended: its tt__worker says how */
    TT__ON_UNSTARTABLE, /* a worker could not be started */
    TT__ON_LEFTOVERS,   /* all workers have ended, but processes that they started are there */
    TT__ON_CLEARED,     /* no process of the attempt is left, except `unkillable` ones */
    TT__ON_KEEPER_LOST, /* the keeper was killed */
    TT__ON_IDLE_READ,   /* DO_READ_IDLE has been done */

    /* Of this process. */
    TT__ON_SIGNAL,  /* it got a signal */
    TT__ON_FAILURE, /* an action could not get what it needs: the job can't go on here */

    /* From the other nodes. Those of an earlier attempt are ignored. */
    TT__ON_ROUND,            /* `round` begins, when nothing of an earlier one is left here */
    TT__ON_NO_ROUND,         /* there will be none; ON_OVER does not follow */
    TT__ON_MISSED,           /* the round that was to begin here goes on without this node, or not at all: join anew */
    TT__ON_COORDINATOR_GONE, /* there was no round yet: join anew; ON_OVER does not follow */
    TT__ON_REMOTE_END,       /* a worker of another node failed */
    TT__ON_REMOTE_WAIT,      /* ranks of another node wait for the next round */
    TT__ON_REMOTE_SIGNAL,    /* another launcher got a signal, and ends its workers */
    TT__ON_LOST,             /* a node's launcher no longer responds */
    TT__ON_LEFT,             /* a node's launcher won't go on */
    TT__ON_OVER,             /* all nodes are done or lost. A node that waits for a round gets none */
    TT__ON_REGROUP,          /* the coordinator ends an attempt, as nodes come or go */
    TT__ON_LAST,             /* the coordinator says that no attempt follows */
    TT__ON_ALL_GONE,         /* to the coordinator: no node has workers any more, except those that are kept */
    TT__ON_NEWCOMER,         /* to the coordinator: a node would like to take part, and there is room */
    TT__ON_DEPOSED           /* this node coordinates no more: another does */
} tt__event_kind;

/* An event. Pointers are borrowed until the step returns, unless it says otherwise. */
typedef struct tt__event {
    tt__event_kind kind;
    union {
        struct {
            int worker;
            int agreed; /* the signal for which it has stopped with all ranks, as agreed; 0: it has not */
        } ended;
        int unkillable;
        struct {
            int sig;
            bool from_terminal; /* the terminal has sent it to the whole process group: workers have got it, too */
        } signal;
        struct {
            tt__round *round; /* NULL after the step: the machine has taken it */
            bool coordinates; /* this node now serves the store */
        } round;
        tt__remote_end *end; /* ON_REMOTE_END. NULL after the step: the machine has taken it */
        struct {
            tt__lost_node *node; /* NULL after the step: the machine has taken it */
        } lost;                  /* ON_LOST, ON_LEFT */
        struct {
            int attempt;
            int blamed; /* the rank that they blame; -1: none */
        } remote_wait;
        struct {
            int node, sig;
        } remote_signal;
        struct {
            int attempt;
            const char *why;
        } regroup; /* ON_REGROUP, ON_NEWCOMER (attempt: unused) */
        struct {
            int attempt;
        } last;
        struct {
            int attempt;
            bool any_kept; /* workers on some node wait for the next round */
            bool well;     /* all workers have ended well, of their own accord */
        } all_gone;
        const char *text; /* ON_NO_ROUND */
    };
} tt__event;

/* What the machine must know of its surroundings when an event comes. */
typedef struct tt__surroundings {
    int64_t now_ms; /* as tt__now_ms() */
    int64_t realtime_ns;
    int listeners; /* how many ranks have ever begun to listen for rounds */
    /* This node's workers that run: how many, how many of them survive the loss of others, how many wait for the next
     * round, and a rank that one of these blames, -1: none. starting: how many do not run yet. */
    struct tt__survivors {
        int living, able, waiting, blamed, starting;
    } survivors;
} tt__surroundings;

typedef struct tt__survivors tt__survivors;

/* How an attempt ended that is followed by another. */
typedef enum tt__attempt_cause {
    TT__CAUSE_FAILURE, /* a rank failed */
    TT__CAUSE_LOSS,    /* a node was lost */
    TT__CAUSE_CHANGE,  /* nodes came or went */
    TT__CAUSE_CALL     /* the ranks want another round, though none is lost: their network was cut for a moment, say */
} tt__attempt_cause;

typedef enum tt__action_kind {
    /* To this node's workers and their keeper. */
    TT__DO_START,        /* start the workers that are not there */
    TT__DO_SIGNAL,       /* send a signal */
    TT__DO_KILL,         /* kill all that the workers have started, and them */
    TT__DO_KILL_KEEPER,  /* it did not respond to DO_KILL */
    TT__DO_KILL_ORPHANS, /* the keeper is dead: kill what it has left */
    TT__DO_KILL_LATE,    /* kill workers that don't wait for the next round */
    TT__DO_TELL_ROUND,   /* tell the workers that are kept that the round begins, and their new ranks */
    TT__DO_WANT_ROUND,   /* ask the workers for the next round */
    TT__DO_DENY_ROUND,   /* tell those that wait for the next round that it won't come */
    TT__DO_READ_IDLE,    /* read the stacks of workers for which others have waited in vain; ON_IDLE_READ follows */
    TT__DO_COLLECT,      /* the attempt is over here: take what its processes have written and handed in */
    TT__DO_FORGET,       /* forget the attempt's failures, and the workers that are not kept */

    /* To the other nodes. */
    TT__DO_PUBLISH_END,      /* tell them how worker `worker` ended */
    TT__DO_PUBLISH_NODE_END, /* tell their ranks that those of node `node` have ended */
    TT__DO_ANNOUNCE_GONE,
    TT__DO_ANNOUNCE_SUCCESS,
    TT__DO_ANNOUNCE_REGROUP,
    TT__DO_ANNOUNCE_LAST,
    TT__DO_ANNOUNCE_SIGNAL,
    TT__DO_ANNOUNCE_DONE,
    TT__DO_ORDER_ROUND,
    TT__DO_RENEW_STORE,
    TT__DO_REJOIN, /* look for the job again */

    /* To the user. */
    TT__DO_SAY,            /* print a line */
    TT__DO_ALARM,          /* the same, as a failure */
    TT__DO_SAY_ROUND,      /* print which round begins */
    TT__DO_SAY_LATE,       /* print which ranks are waited for */
    TT__DO_SAY_DEPOSED,    /* print that another node has replaced this one as coordinator */
    TT__DO_REPORT_LOST,    /* report the nodes that are lost */
    TT__DO_REPORT_ATTEMPT, /* report how the attempt ended, and remember it */
    TT__DO_NOTE_WHY,       /* keep the reason for which the attempt ends */

    TT__DO_FAIL, /* the job fails with `text` */
    TT__DO_NEXT  /* then ON_NEXT; always the last */
} tt__action_kind;

/* Which processes get DO_SIGNAL. */
typedef enum tt__signal_scope {
    TT__TO_WORKERS,   /* the workers and all that they started */
    TT__TO_LEFTOVERS, /* what workers left behind */
    TT__TO_OTHERS     /* as TO_WORKERS, except the processes that a terminal's signal has reached */
} tt__signal_scope;

/* How an attempt has ended on this node. */
typedef struct tt__gone {
    int attempt;
    bool kept;  /* workers here wait for the next round */
    int blamed; /* the rank that those blame; -1: none */
    bool well;  /* all have ended well, of their own accord */
} tt__gone;

enum { TT__SAY_BYTES = 2048, TT__ACTIONS_MAX = 16 };

typedef struct tt__action {
    tt__action_kind kind;
    union {
        struct {
            bool again; /* workers have run before: they get new streams */
        } start;
        struct {
            int sig;
            tt__signal_scope scope;
        } signal; /* DO_SIGNAL, DO_ANNOUNCE_SIGNAL (scope: unused) */
        struct {
            int attempt;
            bool kept; /* workers here wait for the next round */
        } collect;
        int late;    /* DO_KILL_LATE: only this rank; -1: all */
        int worker;  /* DO_PUBLISH_END */
        int node;    /* DO_PUBLISH_NODE_END */
        int attempt; /* DO_ANNOUNCE_SUCCESS, DO_ANNOUNCE_LAST */
        tt__gone gone;
        struct {
            tt__counts counts;
            bool renews; /* the store is renewed first */
        } order;
        struct {
            tt__attempt_cause cause;
            bool recovers; /* ranks that survive go on */
        } report;
        struct {
            int attempt;              /* DO_ANNOUNCE_REGROUP */
            char text[TT__SAY_BYTES]; /* DO_SAY, DO_ALARM, DO_NOTE_WHY, DO_ANNOUNCE_REGROUP, DO_FAIL */
        } say;
    };
} tt__action;

/* What is to be done, in this order. */
typedef struct tt__actions {
    int n;
    bool overflowed; /* there was no room for another one: never, as the exploration of all states shows */
    tt__action list[TT__ACTIONS_MAX];
} tt__actions;

#endif
