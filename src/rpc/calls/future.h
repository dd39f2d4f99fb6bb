/* Futures. A future knows nothing of calls. While a thread waits for one, it uses a driver: functions that do what will
 * end the future, such as moving messages. */
#ifndef TT_RPC_FUTURE_H
#define TT_RPC_FUTURE_H

#include <tutti/rpc.h>

#include <pthread.h>
#include <stdatomic.h>

/* How a thread waits for a future. */
typedef struct tt__future_driver {
    /* Wait until `future` is done, or until `deadline_ms` (0: none), and do meanwhile what will end it. */
    void (*wait)(void *user, tt_future *future, int64_t deadline_ms);

    /* Wake a thread that waits in wait() for `future`, which is done now. Called by any thread that holds no lock of a
     * worker. */
    void (*wake)(void *user, tt_future *future);
    void *user;
} tt__future_driver;

typedef struct tt__future_callback {
    struct tt__future_callback *next;
    tt_future_fn fn;
    void *user;
    bool inside; /* it is the library's own: it waits for nothing, so the thread is not marked as in a callback */
} tt__future_callback;

/* A thread that waits in a driver; on its stack. */
typedef struct tt__future_waiter {
    struct tt__future_waiter *next;
    const tt__future_driver *driver;
} tt__future_waiter;

struct tt_future {
    _Atomic int shares;
    _Atomic bool done;
    bool ending; /* a thread has begun to end it; another one must not */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tt_status status;
    char *text; /* of the error; NULL: tt_status_text(status) */
    tt_rpc_value value;
    tt__future_callback *callbacks, **callbacks_end;
    tt__future_waiter *waiters;
    const tt__future_driver *driver; /* NULL: threads that wait use their own, or sleep */
};

/* Make a future whose waiters use `driver` (NULL: none), which must last until it is done. NULL, recorded: no
 * memory. */
tt_future *tt__future_new_driven(const tt__future_driver *driver);

/* Set the driver that the calling thread uses for futures without one (NULL: none): the pool's threads have one. */
void tt__future_set_thread_driver(const tt__future_driver *driver);

/* End a future with an owned value, which is taken, or with an error, whose text is copied (NULL: that of the status).
 * If it has ended already, the value is freed. Runs the callbacks, so the caller holds no lock. */
void tt__future_end(tt_future *future, tt_status status, const char *text, tt_rpc_value value);

/* Add a callback of the library's own: it must not wait, nor call functions of the program. */
tt_status tt__future_follow(tt_future *future, tt_future_fn fn, void *user);

/* Is the future done? */
static inline bool tt__future_done(const tt_future *future) {
    return atomic_load_explicit(&future->done, memory_order_acquire);
}

#endif
