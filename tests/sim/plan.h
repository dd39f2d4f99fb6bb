/* What happens in a case: a job, and a list of things that are not as they should be, all drawn from the seed. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "sim/random.h"

enum { SIM_MOST_ITEMS = 24 };

typedef enum sim_kind {
    /* Workers. */
    SIM_FAILS,          /* worker `local` of attempt `attempt` ends at_ms after its start with wait status `value`; with
                           for_ms it reports a failure then, and takes so long to end */
    SIM_NOT_EXECUTABLE, /* it can't be executed: errno `value` */
    SIM_REACTS,         /* when another worker fails it does as `value` says, a sim_reaction */
    SIM_STOPS,          /* it is stopped then, for for_ms: one that survives others' loss */
    SIM_LEAVES,         /* what it started stays for_ms longer than itself */
    /* Processes, machines and the network; what lasts for_ms is gentle while a heartbeat is longer by far. */
    SIM_FREEZE,        /* the launcher is stopped */
    SIM_PAUSE,         /* the machine is stopped */
    SIM_PARTITION,     /* the machine can't be reached */
    SIM_SIGNAL,        /* the launcher gets signal `value` */
    SIM_KILL_LAUNCHER, /* by SIGKILL; with a value it is started again so many ms later */
    SIM_KILL_KEEPER,   /* likewise */
    SIM_KILL_MACHINE,  /* power is off: nothing says so */
    SIM_CUT,           /* the launcher's connection to the store is reset */
    SIM_LATE,          /* the launcher is started at_ms later than the others */
    SIM_ABSENT,        /* it is never started */
    SIM_CANNOT_START,  /* it tells the others that its program is missing */
    SIM_TWIN,          /* at_ms after the beginning another launcher is started with its number */
    SIM_KINDS
} sim_kind;

typedef enum sim_reaction {
    SIM_REPORTS, /* it ends and says that another one failed: what all do that are not told otherwise */
    SIM_BREAKS,  /* it ends as if it were itself the cause */
    SIM_HANGS,   /* until SIGTERM */
    SIM_IGNORES, /* hangs, and ignores SIGTERM */
    SIM_SUCCEEDS /* it needs nobody */
} sim_reaction;

/* When: at_ms after ... */
typedef enum sim_moment {
    SIM_FROM_BEGINNING, /* the world's */
    SIM_FROM_REQUEST,   /* the launcher has sent its request number at_ms to the store; not a time, then */
    SIM_FROM_START,     /* it began attempt `attempt` */
    SIM_FROM_GONE       /* no process of that attempt was left there */
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
    bool elastic;             /* members get their numbers as they come, and a job may run */
    int min_nodes, max_nodes; /* on so many at one time */
    int64_t last_call_ms, rejoin_ms;
    int max_restarts;
    int64_t heartbeat_ms, join_ms, settle_ms, grace_ms;
    int64_t work_ms;  /* how long an attempt takes in which nothing happens */
    int64_t delay_us; /* of a packet, typically */
    int lost;         /* packets of a thousand that come only when sent again */
    int64_t skew_ms;  /* clocks differ by at most */
    bool secret;      /* what launchers write is signed */
    bool recovers;    /* workers survive the loss of others: trainer.h; */
    bool stops;       /* and make of a signal a wish that all stop */
    int n;
    sim_item items[SIM_MOST_ITEMS];
} sim_plan;

/* Draw a case of 2 .. max_nodes nodes: a fixed set, or one that changes. */
void sim_plan_draw(sim_plan *plan, uint64_t seed, int max_nodes);

/* Let the plan be of members that come and go. */
void sim_plan_make_elastic(sim_plan *plan, int min_nodes, int max_nodes);

/* How many launchers there may be in a case, those that are started again counted. */
static inline int sim_plan_launchers(const sim_plan *plan) { return plan->nodes + 1 + SIM_MOST_ITEMS; }

/* A job of so many nodes in which nothing goes wrong. */
void sim_plan_calm(sim_plan *plan, uint64_t seed, int nodes);

/* How long an epoch takes the fewest workers that survive. */
int64_t sim_plan_epoch_ms(const sim_plan *plan);

/* Does the item, harsh as it is, allow launchers to be lost? */
bool sim_item_is_harsh(const sim_plan *plan, const sim_item *item);

/* Is the network so slow for so many that reading what all wrote, one after the other, takes a good part of a
 * heartbeat? */
bool sim_plan_is_slow(const sim_plan *plan);

/* Is there an item of the kind? */
bool sim_plan_has(const sim_plan *plan, sim_kind kind);

/* May a worker be missing that has not failed: one that is stopped for long, or ends well before the others? */
bool sim_plan_misses_some(const sim_plan *plan);

void sim_plan_print(const sim_plan *plan);

#endif
