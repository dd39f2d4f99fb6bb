/* The state of a worker. A file calls those above it in this list only:
 *
 *   rpc_signature.c, functions.c       what can be called
 *   live.c                             which workers this process has
 *   landing_memory.c                   memory that large parts land in
 *   rpc_value.c, future.c              values, and those that are not there yet (future_chains.c)
 *   encode.c, decode.c                 values become packets, and packets values
 *   peers.c                            the other workers: who is lost
 *   sending.c                          packets and parts go out, in order, within windows
 *   references.c                       references, and whom their owners count
 *   pool_crew.c                        how many threads run functions
 *   waiting.c                          who moves messages; threads that wait
 *   rpc_pool.c                         what those threads do
 *   recording.c                        what of all this `tutti top` sees
 *   outgoing_calls.c                   calls to others that are under way
 *   call_results.c                     their replies
 *   calling.c                          calls are made, and end
 *   replying.c                         replies to calls of others
 *   serving.c                          calls of others; function_args.c has what functions see of them
 *   cycles.c                           calls that wait for each other are found
 *   rpc_dispatch.c                     packets come
 *   rpc_keeper.c                       the thread that looks after all this
 *   leaving.c                          all leave together
 *   agent.c                            a worker's life; the public calls
 *   network_group.c, network_store.c   ways to the other workers
 *
 * One lock guards it all, that of the network; only what says so is read without it. */
#ifndef TT_RPC_STATE_H
#define TT_RPC_STATE_H

#include "comm/record/own_recorder.h"
#include "rpc/functions.h"
#include "rpc/future.h"
#include "rpc/network.h"
#include "rpc/rpc_wire.h"

enum {
    TT__RPC_WINDOW = 4 << 20,      /* bytes of requests that a worker may have with another that has not begun them */
    TT__RPC_REQUEST_COST = 64,     /* of a request in the window, beside its bytes */
    TT__RPC_QUEUED_MAX = 16 << 20, /* bytes of requests that wait here for a window; callers wait beyond that */
    TT__RPC_LOOK_MS = 50           /* between looks at other workers */
};

/* Something that is to be done without the lock, by a thread that moves messages. */
typedef struct tt__rpc_due {
    struct tt__rpc_due *next;
    void (*run)(tt_rpc *rpc, struct tt__rpc_due *due);
} tt__rpc_due;

typedef struct tt__rpc_due_list {
    tt__rpc_due *first, **end; /* end: &first, or that of the last */
} tt__rpc_due_list;

/* Memory of a packet that has come. */
typedef struct tt__rpc_packet {
    struct tt__rpc_packet *next;
    size_t size, room;
    _Alignas(16) uint8_t data[];
} tt__rpc_packet;

/* Parts that are on their way, out or in; `due` becomes due when all are done. */
typedef struct tt__rpc_transfer {
    struct tt__rpc_transfer *next;
    _Atomic uint32_t pending;
    bool listed;
    uint32_t count;
    tt__message *messages; /* (count) */
    tt__rpc_due *due;      /* NULL: nothing is to be done then */
} tt__rpc_transfer;

/* A packet that waits: for a link, for the window, or behind others. */
typedef struct tt__rpc_waiting {
    struct tt__rpc_waiting *next;
    tt__rpc_transfer *transfer; /* is begun when the packet is sent; or NULL */
    bool request;
    size_t size;
    uint8_t data[];
} tt__rpc_waiting;

typedef struct tt__rpc_peer {
    int id;
    struct tt__rpc_peer *next_waiting; /* of those with packets that wait */
    bool listed;
    char name[TT__RPC_NAME_SIZE]; /* "": not asked for yet */
    tt_status lost;               /* it died, froze, left or broke the protocol */
    char *why;
    bool told;                      /* on_lost was called */
    bool leaving;                   /* it has called tt_rpc_shutdown() */
    uint32_t idle_wave;             /* that it has answered */
    uint32_t window_out, window_in; /* bytes of requests that were not begun: this worker's there, and its here */
    uint32_t credit;                /* bytes to be given back to it */
    tt__rpc_waiting *waiting, **waiting_end;
    size_t waiting_bytes;
    uint32_t calls_out; /* under way */
    uint32_t calls_in;  /* of it that were not replied to */
    size_t landing;     /* bytes of parts that come from it, as counted in tt_rpc.landing_bytes */
    uint64_t calls_sent, calls_received;
    uint64_t last_serial; /* of the references that it has made here */
    int64_t refs;         /* references held here whose value lies there */
    int64_t holds;        /* counts of values here that it holds */
    uint32_t unmade;      /* references that it has spoken of first, before the call that makes them */
    int asked_of;         /* 1 + the last lost worker of which it was asked */
    uint32_t settles;     /* lost workers of which it is asked what they gave it */
    uint8_t *askers;      /* bits of workers that ask what this one, once it is lost, gave; NULL: nobody does */
} tt__rpc_peer;

typedef struct tt__rpc_counters {
    int64_t calls, calls_made, serving, served, owned, held;
    size_t bytes;
} tt__rpc_counters;

struct tt__rpc_out; /* calling.c */

/* A thread that waits for a future; on its stack. */
typedef struct tt__rpc_wait {
    struct tt__rpc_wait *next;
    tt_future *future;
    tt_rpc_call *call; /* in which it does so; NULL: in none that this worker serves */
    bool sleeps;       /* on `wanted`: it is woken when the future is done, or to move messages */
    bool has_condition;
    pthread_cond_t wanted;
    int64_t search_ms, pause_ms; /* when cycles.c asks what it waits for, and how long it pauses then */
} tt__rpc_wait;

struct tt_rpc {
    tt__rpc_network *network;
    char name[TT__RPC_NAME_SIZE];
    int id;
    uint32_t forks; /* tt__forks of the process that made it */
    int threads, max_threads;
    int64_t timeout_ms;
    size_t max_memory;
    tt_status ended; /* nothing begins any more */
    bool leaving;    /* tt_rpc_shutdown() was called */

    tt__rpc_peer **peers;    /* (network->messages' size); NULL: nothing was said with it yet */
    int peer_room, peer_end; /* ids are below; those that have been heard of are below peer_end */
    tt__rpc_peer *waiting_peers;
    tt__rpc_counters counters;

    /* ---- who moves messages: waiting.c */
    _Atomic uintptr_t poller;          /* the thread that does; 0: none. Set under the lock, */
    _Atomic uint32_t polls;            /* as is how often one did */
    bool poller_sleeps, poller_serves; /* it sleeps in the network; it is one that runs functions */
    int waiters;                       /* threads that wait for futures, */
    int sleepers;                      /* threads that wait for other things, on `changed`; */
    int movers_asleep;                 /* of them those that would move messages meanwhile */
    pthread_cond_t changed;
    _Atomic uint64_t came; /* ticks: when a packet came last */
    int64_t served_ns;     /* when a call of another came last */
    tt__rpc_due_list due;
    tt__rpc_wait *waits; /* threads that wait for futures */
    tt__rpc_transfer *transfers;
    tt__future_driver driver;
    void (*deliver)(tt_rpc *rpc, tt__rpc_peer *from, tt__rpc_packet *packet); /* rpc_dispatch.c */
    tt__rpc_packet *free_packets;
    int free_packet_count;

    /* ---- threads that run functions: pool_crew.c, rpc_pool.c */
    tt__rpc_due_list queue;
    int pool_threads, pool_idle, pool_waiting; /* in all; that sleep without work; that wait in Tutti's own waits */
    int pool_called;                           /* that were woken or made, and have not come yet */
    int queued;                                /* calls in the queue */
    int64_t run_ns;                            /* how long a run takes, on average of late */
    bool pool_stops;
    bool pool_is_to_sleep; /* in the network, at once: who is woken next; few messages come */
    pthread_cond_t idle, pool_ended;
    void *(*pool_main)(void *rpc);
    char pool_why[256]; /* no more threads could be made; "": none failed */

    /* ---- calls of others: serving.c */
    struct tt_rpc_call *serving; /* that have not been replied to, linked */
    size_t landing_bytes;        /* of parts that come, and of those that have come for calls that have not begun */
    tt__rpc_due_list held;       /* calls whose parts are not asked for, as there are too many of them */
    tt__rpc_due_list slow;       /* calls whose callers do not take what they are sent */

    /* ---- calls to others: calling.c */
    struct tt__rpc_out **outs;   /* by index */
    uint32_t out_room, out_free; /* out_free: the first free index, or out_room */
    int64_t next_deadline_ms;    /* of any; 0: none */

    /* ---- references.c */
    struct tt_rref **rrefs; /* hashed */
    uint32_t rref_room, rref_count;
    uint64_t last_serial;
    tt__own_recorder own_recorder; /* where the network has none */
    int64_t *made; /* by a function's number: references whose values it has made here; NULL: they are not counted */

    /* ---- the thread that looks after all: rpc_keeper.c */
    pthread_t keeper;
    bool has_keeper;
    uint64_t seen;     /* the packet that it saw last, as `came`, */
    int64_t active_ns; /* and when it saw that there was a new one */
    _Atomic bool keeper_stops, keeper_called;
    _Atomic bool keeper_sleeps;  /* for long, so that it is woken when work begins */
    pthread_mutex_t keeper_lock; /* of its sleep alone: while calls come it looks often, and disturbs nobody */
    pthread_cond_t keeper_wanted;
    void (*on_lost)(tt_rpc *rpc, int id, const char *why, void *user);
    void *on_lost_user;
    int lost_untold;

    /* ---- cycles.c */
    struct tt__rpc_probe *probes;
    uint32_t last_probe;
    int64_t searched_ms;
    int searches; /* begun since then */

    /* ---- leaving.c */
    uint32_t wave, waves_answered; /* that this worker leads; answers to it */
    uint64_t wave_sent, wave_received, last_sent, last_received;
    bool wave_repeats;
    uint32_t wave_led_for; /* so many workers */
    uint32_t asked_wave;   /* by the leader; 0: none that is not answered */
    int asked_by;
    int ended_by; /* 1 + the worker that has said TT__RPC_END; 0: none */
    bool may_end;
    int ended_without; /* a worker that the leader knows to be lost, plus 1; 0: none */

    void *attached;
    void (*attached_end)(void *attached);
};

static inline void tt__rpc_lock(tt_rpc *rpc) { pthread_mutex_lock(rpc->network->lock); }
static inline void tt__rpc_unlock(tt_rpc *rpc) { rpc->network->ops->unlock(rpc->network); }

/* Have the keeper look at once. */
static inline void tt__rpc_keeper_call(tt_rpc *rpc) {
    pthread_mutex_lock(&rpc->keeper_lock);
    rpc->keeper_called = true;
    pthread_cond_signal(&rpc->keeper_wanted);
    pthread_mutex_unlock(&rpc->keeper_lock);
}

static inline uintptr_t tt__rpc_poller(const tt_rpc *rpc) {
    return atomic_load_explicit(&rpc->poller, memory_order_relaxed);
}

static inline void tt__rpc_list_add(tt__rpc_due_list *list, tt__rpc_due *due) {
    due->next = NULL;
    *list->end = due;
    list->end = &due->next;
}

static inline tt__rpc_due *tt__rpc_list_take(tt__rpc_due_list *list) {
    tt__rpc_due *due = list->first;
    if (due && !(list->first = due->next))
        list->end = &list->first;
    return due;
}

static inline void tt__rpc_due_add(tt_rpc *rpc, tt__rpc_due *due) { tt__rpc_list_add(&rpc->due, due); }

static inline void tt__rpc_queue_add(tt_rpc *rpc, tt__rpc_due *due) {
    tt__rpc_list_add(&rpc->queue, due);
    rpc->queued++;
}

static inline tt__rpc_due *tt__rpc_queue_take(tt_rpc *rpc) {
    tt__rpc_due *due = tt__rpc_list_take(&rpc->queue);
    rpc->queued -= due != NULL;
    return due;
}

#endif
