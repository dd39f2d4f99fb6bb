#include "comm/in_callback.h"

#include "base/error.h"

#include <pthread.h>

uint32_t tt__forks;

static void in_child(void) { tt__forks++; }

static void register_atfork(void) { pthread_atfork(NULL, NULL, in_child); }

void tt__watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_atfork);
}

_Atomic uint32_t tt__callbacks_running;

/* 1 + tt__forks of the process in which this thread entered a callback. A child that is forked in a callback is in
 * none. */
static _Thread_local uint32_t entered;

bool tt__thread_is_in_callback(void) { return entered == tt__forks + 1; }

uint32_t tt__callback_enter(void) {
    uint32_t outer = entered;
    atomic_fetch_add_explicit(&tt__callbacks_running, 1, memory_order_relaxed);
    entered = tt__forks + 1;
    return outer;
}

void tt__callback_leave(uint32_t outer) {
    entered = outer;
    atomic_fetch_sub_explicit(&tt__callbacks_running, 1, memory_order_relaxed);
}

tt_status tt__refuse_in_callback(const char *what) {
    return tt__fail(TT_ERR_STATE,
                    "%s: a callback of a work must not wait. Make the call with .work there, or in another thread",
                    what);
}
