/* Does this thread run a callback, which must not wait? Is this process a forked child of one that made groups? A
 * forked child has a copy of its parent's groups, but not its threads, and shares its sockets and memory: a single byte
 * that the child wrote would break the parent's calls. So a group knows the process that made it, and a child can only
 * free its copy. */
#ifndef TT_COMM_IN_CALLBACK_H
#define TT_COMM_IN_CALLBACK_H

#include <tutti/base.h>

#include <stdatomic.h>
#include <stdint.h>

/* Callbacks that run now, in all threads of the process. Mostly 0, which is cheaper to check than which threads run
 * them. */
extern _Atomic uint32_t tt__callbacks_running;

/* Does the calling thread run a callback? */
bool tt__thread_is_in_callback(void);
static inline bool tt__in_callback(void) {
    return __builtin_expect(atomic_load_explicit(&tt__callbacks_running, memory_order_relaxed) != 0, 0) &&
           tt__thread_is_in_callback();
}

/* Note that this thread begins to run a callback; that it has ended, with what tt__callback_enter() returned. */
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
