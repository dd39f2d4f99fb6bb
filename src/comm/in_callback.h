/* What a callback of a work may not do: wait. */
#ifndef TT_COMM_IN_CALLBACK_H
#define TT_COMM_IN_CALLBACK_H

#include <tutti/base.h>

#include <stdatomic.h>
#include <stdint.h>

/* Callbacks that run now, in all of the process's threads: most often 0, which is cheaper to see than whose they
 * are. */
extern _Atomic uint32_t tt__callbacks_running;

/* Whether the calling thread runs one. */
bool tt__thread_is_in_callback(void);
static inline bool tt__in_callback(void) {
    return __builtin_expect(atomic_load_explicit(&tt__callbacks_running, memory_order_relaxed) != 0, 0) &&
           tt__thread_is_in_callback();
}

/* This thread begins to run one; its end, with what the beginning gave. */
uint32_t tt__callback_enter(void);
void tt__callback_leave(uint32_t outer);

/* TT_ERR_STATE where `what`, which waits, is called by a callback. */
tt_status tt__refuse_in_callback(const char *what);
static inline tt_status tt__may_wait(const char *what) {
    return tt__in_callback() ? tt__refuse_in_callback(what) : TT_OK;
}

/* How many forks lie between this process and the first of its ancestors that made a group. */
extern uint32_t tt__forks;

/* Start to count forks. */
void tt__watch_forks(void);

#endif
