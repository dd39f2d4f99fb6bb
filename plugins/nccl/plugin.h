/* The nccl back end: groups on NVIDIA GPUs, by NCCL.
 *
 * An engine has two communicators, each with a stream of its own: one for collectives, one for sends and receives,
 * which may come in another order on each rank. Communicators never block: a call may return ncclInProgress, and until
 * it is over no other call may use the communicator. So begin() only puts a request into its lane's queue;
 * nccl_advance(), from test() and the other functions, issues what can be issued. A request runs once an event of its
 * own is recorded behind it, and is done when that has happened. What a lane's queue of messages holds when it is
 * issued becomes one group of NCCL's, so that the messages of a batch don't wait for each other.
 *
 * One lock guards all of NCCL and all engines, since NCCL's communicators on one device can't be used by two threads.
 * Nothing waits while it is held. ncclCommAbort() may wait: it runs in a thread of its own (end.c). */
#ifndef PLUGINS_NCCL_PLUGIN_H
#define PLUGINS_NCCL_PLUGIN_H

#include <tutti/backend.h>

#include "cuda_abi.h"
#include "nccl_abi.h"

#include <pthread.h>

/* The functions of both libraries. */
typedef struct nccl_functions {
#define NCCL_FIELD(result, name, parameters) result(*name) parameters;
    NCCL_ABI_FUNCTIONS(NCCL_FIELD)
#undef NCCL_FIELD
} nccl_functions;

/* NULL where NCCL hasn't them. */
typedef struct nccl_window_functions {
#define NCCL_FIELD(result, name, parameters) result(*name) parameters;
    NCCL_ABI_WINDOW_FUNCTIONS(NCCL_FIELD)
#undef NCCL_FIELD
} nccl_window_functions;

typedef struct cuda_functions {
#define CUDA_FIELD(name, parameters) CUresult(*name) parameters;
    CUDA_ABI_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
} cuda_functions;

extern const tt_backend_host *nccl_host;
extern nccl_functions nccl;
extern nccl_window_functions nccl_windows;
extern cuda_functions cuda;

/* An event that is used again and again: to make and destroy them takes locks of the driver. */
typedef struct nccl_event {
    struct nccl_event *next, *next_free;
    CUevent event;
    bool timed; /* it notes when it happens, which costs the device a little */
} nccl_event;

/* A moment that the host's clock and the device's know: an event on an idle stream. */
typedef struct nccl_anchor {
    nccl_event *event;
    int64_t at_ns;
    int users; /* requests that are measured from it */
} nccl_anchor;

typedef struct nccl_request {
    struct nccl_request *next;
    tt_call call; /* its lists are in `numbers` */
    enum { NCCL_QUEUED, NCCL_ISSUED, NCCL_RUNNING } state;
    nccl_event *mark, *end; /* the call waits for `mark`; `end` is recorded behind it */
    ncclRedOp_t factor_op;  /* of TT_PREMUL_SUM */
    bool has_factor_op;
    nccl_event *start; /* recorded before a call that is measured; NULL: it isn't measured */
    int64_t start_ns;  /* when the host recorded `start` */
    nccl_anchor *anchor;
    int64_t numbers[]; /* of an uneven call: send counts, send offsets, receive counts, receive offsets (size) each */
} nccl_request;

enum { NCCL_COLLECTIVES, NCCL_MESSAGES, NCCL_LANES };

typedef struct nccl_lane {
    ncclComm_t comm; /* NULL: none */
    CUstream stream;
    nccl_request *first; /* in order of begin(), until test() says that they are done */
    bool in_progress;    /* a call of NCCL's is not over yet */
} nccl_lane;

typedef struct nccl_window nccl_window;

typedef struct nccl_engine {
    int rank, size, device;
    int rank_in_job;                   /* for errors */
    tt_status (*watch)(void *watcher); /* as in tt_backend_member */
    void *watcher;
    char uuid[48]; /* of the device: "GPU-..." */
    CUdevice handle;
    CUcontext context; /* NULL: not retained */
    CUdeviceptr word;  /* what a barrier sums */
    nccl_lane lanes[NCCL_LANES];
    ncclComm_t split_off;                /* where NCCL stores a communicator that it splits off, even after a timeout */
    nccl_window *windows;                /* registered windows */
    nccl_window *lost_windows;           /* those that a communicator may use until its end */
    bool has_no_windows;                 /* the ranks have found out that there can be none */
    ncclComm_t left_behind;              /* a communicator on which registering failed; or NULL */
    nccl_event *events, *free_events[2]; /* by `timed` */
    CUstream clock_stream;               /* of anchors; NULL: not made yet */
    nccl_anchor anchors[2];
    int anchor;         /* the newer of the two */
    bool clock_stopped; /* CUDA failed on clock_stream: no anchors */
    tt_status broken;   /* a failure of NCCL's or CUDA's, and its text */
    char why[512];
    enum { NCCL_OPEN, NCCL_ENDING, NCCL_ENDED } life; /* ENDING: a thread aborts its communicators */
    bool flush;                                       /* before aborting, let NCCL send what peers may lack */
    int holders;                                      /* the engine's owner, and that thread */
} nccl_engine;

extern pthread_mutex_t nccl_lock; /* of everything here */

int64_t nccl_now_ms(void);
void nccl_pause(int64_t waited_ms); /* between two looks; the lock is not held */

/* ---- libraries.c */

/* Open both libraries and find the functions, once. The error says what is missing or too old. */
tt_status nccl_open_libraries(void);

/* Return TT_OK, or record that CUDA failed in `what`. */
tt_status nccl_check_cuda(CUresult result, const char *what);

/* Return TT_OK, also for ncclInProgress; or break the engine. */
tt_status nccl_check(nccl_engine *e, ncclComm_t comm, ncclResult_t result, const char *what);

/* Fail with why the engine is broken. */
tt_status nccl_fail_broken(const nccl_engine *e);

/* ---- join.c */

tt_status nccl_open(void **engine, const tt_backend_member *member);
tt_status nccl_new_group(void **sub, void *engine, const int *ranks, int64_t count, int64_t timeout_ms);
void nccl_set_watch(void *engine, tt_status (*watch)(void *watcher), void *watcher);

/* Whose communicator is waited for, and until when. */
typedef struct nccl_joining {
    nccl_engine *e;                  /* the joining engine; NULL: this rank takes part for the others alone */
    const nccl_engine *parent;       /* whose communicator is used, or NULL */
    const tt_backend_member *member; /* for a first group; or NULL */
    int64_t begin_ms, timeout_ms, asked_ms;
    const char *what;
} nccl_joining;

/* Before the next look: is there still time, and is nobody known to have failed? The lock is not held. */
tt_status nccl_joining_pause(nccl_joining *j);

/* Wait until the lane has issued all that it was given. */
tt_status nccl_await_idle(nccl_joining *j, nccl_engine *e, const nccl_lane *lane);

/* Split a lane's communicator. If time is up before NCCL has done it, the lane stays in progress. */
tt_status nccl_split(nccl_joining *j, nccl_engine *owner, nccl_lane *lane, int color, int key, ncclComm_t *made);

/* Take the lock, to call NCCL on the device of `e`; give it back. */
tt_status nccl_enter(const nccl_engine *e);
void nccl_leave(void);

/* ---- window.c */

typedef tt_status (*nccl_agreement)(void *user, int mine, int *least);

tt_status nccl_window_make(void *engine, size_t bytes, int64_t timeout_ms, nccl_agreement agree, void *user,
                           void **memory);
bool nccl_window_free(void *engine, void *memory);

/* The communicators are gone, the device's context is current, and nobody else uses the list. */
void nccl_free_lost_windows(nccl_engine *e);

/* ---- meet.c: before there is a communicator */

/* Tell the other ranks this one's device, or why it has none (`status`, the last error); get NCCL's unique id from
 * rank 0. Fails alike on all ranks if one failed or two share a device. */
tt_status nccl_meet(const nccl_engine *e, const tt_backend_member *member, tt_status status, ncclUniqueId *id);

/* Tell the others that this rank failed, with the last error; ask whether another did, or has ended or left, which is
 * then the error. */
void nccl_tell_failure(const tt_backend_member *member);
tt_status nccl_ask_failure(const tt_backend_member *member);

/* Does the library tell whether other ranks have ended? Older ones don't have this field. */
bool nccl_can_watch(const tt_backend_member *member);

/* ---- queue.c */

tt_status nccl_begin(void *engine, const tt_call *call, void **request);
tt_status nccl_test(void *engine, void *request, bool *done, int *source);
void nccl_progress(void *engine);
tt_status nccl_stream_mark(void *engine, const tt_call *call, void **mark);
tt_status nccl_stream_wait(void *engine, void *request, void *stream, bool *enqueued);

/* Issue what can be issued; find out what has failed. The lock is held. */
tt_status nccl_advance(nccl_engine *e);

/* Has the lane issued all that it was given? */
bool nccl_is_idle(const nccl_lane *lane);

/* Take an event; give it back and set *event := NULL, which it may be before. The lock is held. */
CUresult nccl_take_event(nccl_engine *e, bool timed, nccl_event **out);
void nccl_give_event(nccl_engine *e, nccl_event **event);

/* ---- times.c: when calls ran on the device. The lock is held, the device's context is current */

/* For a request that is measured: before it is issued; take the event of its end; when it is done. These never fail: a
 * time may stay unknown. */
void nccl_times_begin(nccl_engine *e, const nccl_lane *lane, nccl_request *r);
void nccl_times_take_end(nccl_engine *e, nccl_request *r);
void nccl_times_end(const nccl_request *r);

/* Release what the request holds for its times. */
void nccl_times_forget(nccl_engine *e, nccl_request *r);

/* ---- checks.c */

bool nccl_is_message(tt_op op);

/* Refuse what NCCL can't do, and memory that is not the group's device's. The lock is not held. */
tt_status nccl_check_call(const nccl_engine *e, const tt_call *call);

/* ---- issue.c: the calls of NCCL for a request. The lock is held, the device's context is current. */

bool nccl_supports(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, tt_device_type device);
ncclResult_t nccl_issue(nccl_engine *e, nccl_lane *lane, nccl_request *r);

/* ---- end.c */

void nccl_abort(void *engine);
void nccl_close(void *engine);

/* Make an engine with its stream, its lanes still without communicator. The lock is not held. */
tt_status nccl_new_engine(nccl_engine **out, int rank, int size, int rank_in_job, int device);

#endif
