/* What happens in a case: a job, and a list of things that go wrong, all drawn from the seed. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "sim/random.h"

enum { SIM_MOST_ITEMS = 24 };

typedef enum sim_kind {
    /* Workers. */
    SIM_FAILS,          /* worker `local` of attempt `attempt` ends at_ms after its start with wait status `value`; with
                           for_ms it reports a failure then, and takes so long to end */
    SIM_NOT_EXECUTABLE, /* it can't be executed: errno `value` */
    SIM_REACTS,         /* when another worker fails, it does what `value` says: a sim_reaction */
    SIM_STOPS,          /* a worker that survives others' loss is stopped for for_ms */
    SIM_LEAVES,         /* a process that it started stays for_ms longer */
    /* Processes, machines and the network; what lasts for_ms is gentle while a heartbeat is longer by far. */
    SIM_FREEZE,        /* the launcher is stopped */
    SIM_PAUSE,         /* the machine is stopped */
    SIM_PARTITION,     /* the machine can't be reached */
    SIM_SIGNAL,        /* the launcher gets signal `value` */
    SIM_KILL_LAUNCHER, /* by SIGKILL; `value` not 0: it is started again so many ms later */
    SIM_KILL_KEEPER,   /* by SIGKILL */
    SIM_KILL_MACHINE,  /* its power goes off: no message tells of it */
    SIM_CUT,           /* the launcher's connection to the store is reset */
    SIM_LATE,          /* the launcher is started at_ms later than the others */
    SIM_ABSENT,        /* it is never started */
    SIM_CANNOT_START,  /* it tells the others that its program is missing */
    SIM_TWIN,          /* at_ms after the beginning another launcher with its number is started */
    SIM_KINDS
} sim_kind;

typedef enum sim_reaction {
    SIM_REPORTS, /* it ends and reports that another one failed: the default */
    SIM_BREAKS,  /* it ends as if it had failed by itself */
    SIM_HANGS,   /* it waits until SIGTERM */
    SIM_IGNORES, /* it waits, and ignores SIGTERM */
    SIM_SUCCEEDS /* it needs no other worker, and succeeds */
} sim_reaction;

/* When: at_ms after ... */
typedef enum sim_moment {
    SIM_FROM_BEGINNING, /* the world's beginning */
    SIM_FROM_REQUEST,   /* the launcher has sent its request number at_ms to the store: here at_ms is no time */
    SIM_FROM_START,     /* the launcher has begun attempt `attempt` */
    SIM_FROM_GONE       /* no process of attempt `attempt` is left on the node */
} sim_moment;

typedef struct sim_item {
    sim_kind kind;
    int node, local, attempt;
    int64_t at_ms, for_ms;
    sim_moment from;
    int value;
} sim_item;

typedef struct sim_plan {
    uint64_t seed;
    int nodes, workers;       /* on each node */
    bool elastic;             /* nodes come and go, and get their numbers as they come */
    int min_nodes, max_nodes; /* a job runs on so many nodes at one time */
    int64_t last_call_ms, rejoin_ms;
    int max_restarts;
    int64_t heartbeat_ms, join_ms, settle_ms, grace_ms;
    int64_t work_ms;  /* how long an undisturbed attempt takes */
    int64_t delay_us; /* typical delay of a packet */
    int lost;         /* packets of a thousand that come only when sent again */
    int64_t skew_ms;  /* clocks differ at most by this */
    bool secret;      /* launchers sign what they write */
    bool recovers;    /* workers survive the loss of others: trainer.h */
    bool stops;       /* these workers take a signal as a wish that all stop */
    int n;
    sim_item items[SIM_MOST_ITEMS];
} sim_plan;

/* Draw a case of 2 .. max_nodes nodes: a fixed set, or one that changes. */
void sim_plan_draw(sim_plan *plan, uint64_t seed, int max_nodes);

/* Let the plan's nodes come and go. */
void sim_plan_make_elastic(sim_plan *plan, int min_nodes, int max_nodes);

/* The most launchers that a case may have, counting those that are started again. */
static inline int sim_plan_launchers(const sim_plan *plan) { return plan->nodes + 1 + SIM_MOST_ITEMS; }

/* A job of so many nodes in which nothing goes wrong. */
void sim_plan_calm(sim_plan *plan, uint64_t seed, int nodes);

/* How long an epoch takes on the fewest workers that may be left. */
int64_t sim_plan_epoch_ms(const sim_plan *plan);

/* Is the item so harsh that launchers may be lost? */
bool sim_item_is_harsh(const sim_plan *plan, const sim_item *item);

/* Is the network so slow, for so many nodes, that reading what all wrote, one after the other, takes a good part of a
 * heartbeat? */
bool sim_plan_is_slow(const sim_plan *plan);

/* Is there an item of the kind? */
bool sim_plan_has(const sim_plan *plan, sim_kind kind);

/* May a worker be missing without a failure: stopped for long, or ended well before the others? */
bool sim_plan_misses_some(const sim_plan *plan);

void sim_plan_print(const sim_plan *plan);

#endif
