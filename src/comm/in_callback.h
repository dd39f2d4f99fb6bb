/* Callbacks of works must not wait; this tells whether the thread runs one. And forks of the process that makes groups.
 * A forked child has a copy of its parent's groups, but not its threads, and shares its sockets and memory: a single
 * byte that it wrote would break the parent's calls. So a group knows the process that made it; a child can only free
 * its copy. */
#ifndef TT_COMM_IN_CALLBACK_H
#define TT_COMM_IN_CALLBACK_H

#include <tutti/base.h>

#include <stdatomic.h>
#include <stdint.h>

/* Callbacks that run now, in all of the process's threads: most often 0, which is cheaper to see than whose they
 * are. */
extern _Atomic uint32_t tt__callbacks_running;

/* Does the calling thread run a callback? */
bool tt__thread_is_in_callback(void);
static inline bool tt__in_callback(void) {
    return __builtin_expect(atomic_load_explicit(&tt__callbacks_running, memory_order_relaxed) != 0, 0) &&
           tt__thread_is_in_callback();
}

/* This thread begins to run a callback; it ends, and passes what tt__callback_enter() returned. */
uint32_t tt__callback_enter(void);
void tt__callback_leave(uint32_t outer);

/* TT_ERR_STATE if `what`, a function that waits, is called in a callback. */
tt_status tt__refuse_in_callback(const char *what);
static inline tt_status tt__may_wait(const char *what) {
    return tt__in_callback() ? tt__refuse_in_callback(what) : TT_OK;
}

/* How many forks lie between this process and the first of its ancestors that made a group. */
extern uint32_t tt__forks;

/* Start to count forks. */
void tt__watch_forks(void);

#endif
