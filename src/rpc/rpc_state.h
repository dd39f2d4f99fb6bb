/* The state of a worker (tt_rpc), and how the files of src/rpc depend on each other. A file calls those above it only:
 *
 *   functions.c                        signatures, and the registered functions
 *   live.c                             the list of this process's workers
 *   landing_memory.c                   memory that large parts are received into
 *   rpc_value.c                        values
 *   future.c                           futures; then() and collect_all()
 *   encode.c, decode.c                 write values into packets, and read them
 *   sending.c                          what is known of the other workers; send them packets and parts, in order
 *   references.c                       references, and the counts that owners keep
 *   lost_references.c                  the counts of lost workers
 *   rref.c                             tt_rref_new(), tt_rref_free(), and so on
 *   waiting.c                          start and wake the pool's threads; which thread moves messages; how threads wait
 *   recording.c                        what `tutti top` and `tutti trace` show
 *   outgoing_call.c                    the calls that this worker has made, and their replies
 *   calling.c                          make calls, and fail them
 *   served_call.c                      find calls of other workers; what functions see of them
 *   replying.c                         reply to calls of other workers
 *   serving.c                          serve calls of other workers
 *   cycles.c                           find calls that wait for each other
 *   leaving.c                          wait until no call is under way
 *   rpc_dispatch.c                     take packets from the network, by kind
 *   rpc_threads.c                      the pool's threads, which run functions, and the keeper
 *   agent.c                            tt_rpc_init() and tt_rpc_shutdown(); the other public functions
 *   network_group.c, network_store.c   links to the other workers
 *
 * One lock, network->lock, guards all of it. Atomics, and fields whose comments say so, are read without it. */
#ifndef TT_RPC_STATE_H
#define TT_RPC_STATE_H

#include "comm/record/own_recorder.h"
#include "rpc/calls/future.h"
#include "rpc/functions/functions.h"
#include "rpc/values/rpc_wire.h"
#include "rpc/workers/network.h"

enum {
    TT__RPC_WINDOW = 4 << 20,      /* most bytes of requests sent to a worker that has not begun them */
    TT__RPC_REQUEST_COST = 64,     /* added to the bytes of each request in the window */
    TT__RPC_QUEUED_MAX = 16 << 20, /* most bytes of requests to a worker that wait here; beyond that, callers wait */
    TT__RPC_LOOK_MS = 50           /* time between checks on the other workers */
};

/* Work for the poller, which calls run() without the lock; or, in rpc->queue, for a thread of the pool. */
typedef struct tt__rpc_due {
    struct tt__rpc_due *next;
    void (*run)(tt_rpc *rpc, struct tt__rpc_due *due);
} tt__rpc_due;

typedef struct tt__rpc_due_list {
    tt__rpc_due *first, **end; /* end: where the next one is linked: &first, or &last->next */
} tt__rpc_due_list;

/* A received packet. */
typedef struct tt__rpc_packet {
    struct tt__rpc_packet *next; /* of the free ones */
    size_t size, room;           /* bytes of the packet; bytes that `data` has room for */
    _Alignas(16) uint8_t data[];
} tt__rpc_packet;

/* The parts of one packet while they are sent or received. When all are done, `due` is put into rpc->due. */
typedef struct tt__rpc_transfer {
    struct tt__rpc_transfer *next;
    _Atomic uint32_t pending; /* messages that are not done */
    bool listed;              /* in rpc->transfers: begun, and not seen to be done */
    bool begins;              /* its messages are being posted */
    tt_status cancelled;      /* not TT_OK: a packet that came meanwhile has cancelled it */
    uint32_t count;
    tt__message *messages; /* (count) */
    tt__rpc_due *due;      /* or NULL */
} tt__rpc_transfer;

/* A packet that can't be sent yet: there is no link, the window is full, or earlier packets wait. */
typedef struct tt__rpc_waiting {
    struct tt__rpc_waiting *next;
    tt__rpc_transfer *transfer; /* its parts, begun when the packet is sent; or NULL */
    bool request;               /* it is a CALL, KEEP or FETCH, which the window limits */
    size_t size;
    uint8_t data[];
} tt__rpc_waiting;

/* What is known of a worker, this one included. */
typedef struct tt__rpc_peer {
    int id;
    struct tt__rpc_peer *next_waiting; /* in rpc->waiting_peers, if `listed` */
    bool listed;
    char name[TT__RPC_NAME_SIZE]; /* "": not known yet */

    /* Its loss: it died, froze, left or broke the protocol. */
    tt_status lost; /* TT_OK: it is not lost */
    char *why;
    bool told; /* the keeper has failed its calls, and called on_lost */

    /* Leaving together: leaving.c. */
    bool leaving;        /* it has called tt_rpc_shutdown() */
    uint32_t idle_wave;  /* the last wave that it has answered */
    uint32_t asked_wave; /* the wave of this worker that is to be answered; 0: none */
    bool says_end;       /* it has sent END */
    int end_without;     /* 1 + the worker that its END names as lost; 0: none */
    uint64_t calls_sent, calls_received;

    /* Requests and packets. */
    uint32_t window_out; /* bytes of this worker's requests that it has not begun */
    uint32_t window_in;  /* bytes of its requests that this worker has not begun */
    uint32_t credit;     /* bytes of its requests begun here; the next packet tells it */
    tt__rpc_waiting *waiting, **waiting_end;
    size_t waiting_bytes;
    uint32_t calls_out; /* this worker's calls to it that are under way */
    uint32_t calls_in;  /* its calls that have no reply yet */
    int on_threads;     /* those of them that threads run, as counted in rpc->on_threads */
    uint32_t probes;    /* probes of cycles.c that are kept here for it */
    size_t landing;     /* bytes of its calls' parts, as counted in rpc->landing_bytes */

    /* References: references.c. */
    uint64_t last_serial; /* the last reference that it has made to a value here */
    int64_t refs;         /* references held here to its values */
    int64_t holds;        /* tt__rref_hold entries here whose holder it is */
    uint32_t unmade;      /* references that it has named here before the call that makes them came */
    int asked_of;         /* 1 + the last lost worker about which it was sent SETTLE */
    uint32_t settles;     /* SETTLE packets that it has not answered */
    int *askers; /* (asker_count) workers that have sent SETTLE about it, to be answered once it is lost here, too */
    int asker_count;
} tt__rpc_peer;

/* As in tt_rpc_counts. */
typedef struct tt__rpc_counters {
    int64_t calls, calls_made, serving, served, owned, held;
    size_t bytes;
} tt__rpc_counters;

struct tt__rpc_out; /* outgoing_call.h */

/* The tables that find calls of others: served_call.c. */
enum { TT__SERVED_BY_NUMBER, TT__SERVED_BY_VALUE };
typedef struct tt__served_table {
    struct tt_rpc_call **places[2];
    uint32_t room; /* a power of two; 0: nothing was served yet */
    uint64_t secret;
} tt__served_table;

/* A thread that waits for a future; on its stack. */
typedef struct tt__rpc_wait {
    struct tt__rpc_wait *next;
    tt_future *future;
    tt_rpc_call *call; /* the call of this worker that the thread runs; or NULL */
    bool sleeps;       /* on `wanted`, which is signalled when the future is done or the thread is to move messages */
    bool has_condition;
    pthread_cond_t wanted;
    int64_t search_ms; /* when cycles.c begins the next search from here; 0: not set yet */
    int64_t pause_ms;  /* the time between the last search and that one */
} tt__rpc_wait;

struct tt_rpc {
    tt__rpc_network *network;
    char name[TT__RPC_NAME_SIZE];
    int id;
    uint32_t forks; /* tt__forks when it was made: another value means a forked child */
    int threads, max_threads;
    int64_t timeout_ms;
    size_t max_memory;
    tt_status ended; /* not TT_OK: the worker ends, and no call begins any more */
    bool leaving;    /* tt_rpc_shutdown() was called */

    tt__rpc_peer **peers;        /* (peer_room) by id; NULL: not heard of yet */
    int peer_room, peer_end;     /* ids are below peer_room; those heard of are below peer_end */
    tt__rpc_peer *waiting_peers; /* those with packets that wait to be sent */
    tt__rpc_counters counters;

    /* ---- moving messages, and waiting: waiting.c */
    _Atomic uintptr_t poller; /* the thread that moves messages; 0: none. Written under the lock */
    _Atomic uint32_t polls;   /* the number of rounds that pollers have made. Written under the lock */
    bool poller_sleeps;       /* it sleeps in the network */
    bool poller_serves;       /* it is a thread of the pool */
    int waiters;              /* threads in tt__rpc_wait_for(), or waiting for futures */
    int sleepers;             /* threads that sleep on `changed` */
    int movers_asleep;        /* those of them that would move messages if no other thread did */
    pthread_cond_t changed;
    _Atomic uint64_t came;       /* tt__ticks() when the last packet came */
    int64_t served_ns;           /* when the last call of another worker came */
    tt__rpc_due_list due;        /* work for the poller */
    tt__rpc_wait *waits;         /* threads that wait for futures */
    tt__rpc_transfer *transfers; /* those under way */
    tt__future_driver driver;
    tt_status (*deliver)(tt_rpc *rpc, tt__rpc_peer *from, tt__rpc_packet *packet); /* rpc_dispatch.c */
    tt__rpc_packet *free_packets;
    int free_packet_count;
    tt__rpc_packet *reserve; /* for a packet for which there is no memory: it is read, answered and not kept */
    bool reserve_used;

    /* ---- the pool: threads that run functions: waiting.c, rpc_threads.c */
    tt__rpc_due_list queue; /* calls that wait for a thread */
    int queued;             /* calls in the queue */
    int pool_threads;       /* threads in all */
    int pool_idle;          /* those that sleep on `idle` */
    int pool_waiting;       /* those that wait for others in tt__rpc_wait_for() or for futures */
    int pool_called;        /* those that were woken or made, and don't have the lock yet */
    int64_t run_ns;         /* how long functions have taken of late, on average */
    bool pool_stops;
    bool pool_is_to_sleep; /* the next thread that is woken sleeps in the network at once, without a busy wait */
    pthread_cond_t idle, pool_ended;
    void *(*pool_main)(void *rpc);
    char pool_why[256]; /* why the last thread could not be made; "": it could */

    /* ---- calls of other workers: serving.c */
    struct tt_rpc_call *serving; /* all that have no reply yet */
    tt__served_table served;     /* a table of these calls */
    int on_threads;              /* those of them that threads run */
    size_t landing_bytes;        /* bytes of admitted parts, until their calls begin */
    tt__rpc_due_list held;       /* calls whose parts don't fit into max_memory now */
    tt__rpc_due_list slow;       /* calls of workers that don't take earlier replies */
    tt__rpc_due_list aside;      /* calls of workers that have many threads here, while few are left */

    /* ---- calls to other workers: calling.c */
    struct tt__rpc_out **outs;   /* (out_room) */
    uint32_t out_room, out_free; /* out_free: the index of the first free one; out_room: all are used */
    int64_t next_deadline_ms;    /* the earliest one of all calls; 0: none */

    /* ---- references.c */
    struct tt_rref **rrefs; /* a hash table */
    uint32_t rref_room, rref_count;
    uint64_t last_serial;          /* the last reference that this worker has made */
    tt__own_recorder own_recorder; /* used if the network has none */
    int64_t *made; /* (functions) of the values that each made here, how many are referred to; or NULL */

    /* ---- the keeper: rpc_threads.c */
    pthread_t keeper;
    bool has_keeper;
    uint64_t seen;     /* `came` at its last look */
    int64_t active_ns; /* when a look last found that `came` had changed */
    _Atomic bool keeper_stops, keeper_called;
    _Atomic bool keeper_sleeps; /* for TT__RPC_LOOK_MS: call it when work begins */

    /* Guards the keeper's sleep alone. The keeper looks often while calls come: with the worker's lock it would hold up
     * others. */
    pthread_mutex_t keeper_lock;
    pthread_cond_t keeper_wanted;
    void (*on_lost)(tt_rpc *rpc, int id, const char *why, void *user);
    void *on_lost_user;
    int lost_untold; /* lost workers that are not `told` yet */

    /* ---- cycles.c */
    struct tt__rpc_probe *probes;
    uint32_t last_probe;
    int64_t searched_ms; /* the time from which `searches` counts */
    int searches;

    /* ---- leaving.c */
    uint32_t wave, waves_answered; /* as leader: the last wave, and how many workers have answered it */
    uint64_t wave_sent, wave_received, last_sent, last_received; /* sums of that wave, and of the one before */
    bool wave_repeats;                                           /* there was a wave before */
    uint32_t wave_led_for;                                       /* how many workers were not lost when it began */
    int waves_asked;                                             /* waves to be answered */
    int ended_by;                                                /* 1 + the leader that has sent END; 0: none */
    bool end_said;                                               /* the leader has sent END: leaving is no loss now */
    bool may_end;
    int ended_without; /* 1 + a worker that the leader knows to be lost; 0: none */

    void *attached; /* by tt__rpc_attach() */
    void (*attached_end)(void *attached);
};

static inline void tt__rpc_lock(tt_rpc *rpc) { pthread_mutex_lock(rpc->network->lock); }
static inline void tt__rpc_unlock(tt_rpc *rpc) { rpc->network->ops->unlock(rpc->network); }

/* Wake the keeper, so that it looks at once. */
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

/* ---- live.c: the list of this process's workers ----
 * It tells whether a pointer from the program leads to a worker that was shut down, or that is the parent's of this
 * forked child. */

/* Add a worker, remove it, or look it up. From any thread, without locks. */
void tt__rpc_note_live(tt_rpc *rpc);
void tt__rpc_note_dead(tt_rpc *rpc);
bool tt__rpc_is_live(const tt_rpc *rpc);

/* Check a worker that the program gives to function `what`. Errors: TT_ERR_INVALID it is NULL; TT_ERR_STATE it was shut
 * down, or this process was forked since it was made. */
tt_status tt__rpc_usable(const tt_rpc *rpc, const char *what);

/* ---- recording.c: calls and references in the flight recorder (comm/record/recorder.h) ----
 * `tutti top` and `tutti trace` show them. A call costs one cache line and one look at the clock. The keeper publishes
 * the counts. The lock is held. */

/* Begin: write the names of this worker's functions. End: withdraw its counts. */
void tt__recording_begin(tt_rpc *rpc);
void tt__recording_end(tt_rpc *rpc);

/* Record the beginning of a call to worker `to`; `known`: this worker's function of that name, or NULL. Returns the
 * number of its record; 0: there is no recorder. */
uint32_t tt__recording_call(tt_rpc *rpc, tt__rpc_packet_kind kind, const tt__rpc_function *known, int to,
                            const tt__rpc_encoder *e);

/* Record the end of a call: at the time of the packet that came last, or now if `later`. */
void tt__recording_done(tt_rpc *rpc, uint32_t record, tt_status status, bool later);

/* Publish the worker's counts. */
void tt__recording_show(tt_rpc *rpc);

/* ---- rpc_dispatch.c: taking packets from the network, and handing each to the file that knows its kind ---- */

/* Receive this worker's packets from now on. The lock is held. */
void tt__dispatch_begin(tt_rpc *rpc);

#endif
