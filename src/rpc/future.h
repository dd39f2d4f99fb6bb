/* Futures: values that are not there yet. A future knows nothing of calls; who waits for one may be told how to drive
 * what will end it (tt__future_driver). */
#ifndef TT_RPC_FUTURE_H
#define TT_RPC_FUTURE_H

#include <tutti/rpc.h>

#include <pthread.h>
#include <stdatomic.h>

/* How a thread waits: by moving messages meanwhile. */
typedef struct tt__future_driver {
    /* Wait until `future` is done, or to `deadline_ms` (0: none). */
    void (*wait)(void *user, tt_future *future, int64_t deadline_ms);

    /* A future is done for which a thread waits in wait(): it looks again. From any thread, without locks. */
    void (*wake)(void *user, tt_future *future);
    void *user;
} tt__future_driver;

typedef struct tt__future_callback {
    struct tt__future_callback *next;
    tt_future_fn fn;
    void *user;
    bool inside; /* one of the library's own, which needs no mark that it runs */
} tt__future_callback;

/* A thread that waits in a driver; on its stack. */
typedef struct tt__future_waiter {
    struct tt__future_waiter *next;
    const tt__future_driver *driver;
} tt__future_waiter;

struct tt_future {
    _Atomic int shares;
    _Atomic bool done;
    bool ending; /* whoever set it ends the future */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tt_status status;
    char *text; /* of the error; NULL: the status's own */
    tt_rpc_value value;
    tt__future_callback *callbacks, **callbacks_end;
    tt__future_waiter *waiters;
    const tt__future_driver *driver; /* of who will end it; NULL: the waiting thread's, if it has one */
};

/* Make one that ends by itself while waiters use `driver`, which lasts until it is done. */
tt_future *tt__future_new_driven(const tt__future_driver *driver);

/* The driver of the calling thread, for futures that have none: of a thread that runs functions. NULL: none. */
void tt__future_set_thread_driver(const tt__future_driver *driver);

/* End it: with an owned value, which is taken, or an error (`text` is copied; NULL: the status's). Nothing if it is
 * done already; the value is freed then. Runs callbacks: no lock is held. */
void tt__future_end(tt_future *future, tt_status status, const char *text, tt_rpc_value value);

/* Call back without the mark of a callback: `fn` waits for nothing, and runs nothing of the program's. */
tt_status tt__future_follow(tt_future *future, tt_future_fn fn, void *user);

/* Is it done? */
static inline bool tt__future_done(const tt_future *future) {
    return atomic_load_explicit(&future->done, memory_order_acquire);
}

#endif
