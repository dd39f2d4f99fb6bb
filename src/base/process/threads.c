#include "base/process/threads.h"

#include "base/build.h"
#include "base/error.h"
#include "base/process/proc_state.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- threads of the library */

typedef struct start {
    void *(*run)(void *);
    void *arg;
} start;

/* How many of our threads run in process `own_process`; a forked child has none of them. */
static _Atomic int own_threads;
static _Atomic pid_t own_process;

static int threads_count(int more) {
    pid_t self = getpid();
    if (atomic_exchange(&own_process, self) != self)
        atomic_store(&own_threads, 0);
    return atomic_fetch_add(&own_threads, more) + more;
}

static void *thread_run(void *arg) {
    start given = *(start *)arg;
    free(arg);
    void *result = given.run(given.arg);
    threads_count(-1);
    return result;
}

/* The stack has the size that `ulimit -s` gives, or the size that our deepest calls need if that is more. */
static int create_with_room(pthread_t *thread, start *given) {
    const size_t least = 512 << 10;
    pthread_attr_t attr;
    size_t size = 0;
    int errnum = pthread_attr_init(&attr);
    if (errnum)
        return errnum;
    errnum = pthread_attr_getstacksize(&attr, &size);
    if (!errnum && size < least)
        errnum = pthread_attr_setstacksize(&attr, least);
    if (!errnum)
        errnum = pthread_create(thread, &attr, thread_run, given);
    pthread_attr_destroy(&attr);
    return errnum;
}

tt_status tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg, const char *what) {
    sigset_t all, before;
    start *given = malloc(sizeof *given);
    if (!given)
        return tt__fail(TT_ERR_MEMORY, "no memory for %s", what);
    *given = (start){.run = run, .arg = arg};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int errnum = create_with_room(thread, given);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!errnum) {
        /* late: counted early, the program would seem to have fewer threads (tt__program_has_ended) */
        threads_count(1);
        return TT_OK;
    }
    free(given);
    return tt__fail(TT_ERR_SYSTEM,
                    "can't start %s: %s (ulimit -u limits a user's processes and threads, pids.max a control group's, "
                    "ulimit -v and -d the memory that stacks may take)",
                    what, strerror(errnum));
}

void tt__thread_join(pthread_t thread) { pthread_join(thread, NULL); }

void tt__thread_is_ours(void) { threads_count(1); }

/* ---- threads of the program */

int tt__program_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    if (!tasks)
        return 2;
    for (const struct dirent *task; (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    closedir(tasks);
    return n - threads_count(0) - TT__TSAN; /* the sanitizer has a thread of its own */
}

/* A main thread that has ended stays in the kernel's list, as a zombie, while others run. */
bool tt__program_has_ended(void) { return tt__proc_look(getpid()).state == 'Z' && tt__program_threads() <= 1; }

/* ---- conditions */

void tt__cond_init(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void tt__signals_hold(sigset_t *before) {
    static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof raised / sizeof *raised; i++)
        sigdelset(&all, raised[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void tt__signals_release(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

enum { ENOUGH = 256 << 10 };

typedef struct stack_range {
    uintptr_t low;
    size_t size; /* 0: not known */
    bool asked;
} stack_range;

static stack_range ask_range(void) {
    stack_range range = {.asked = true};
    pthread_attr_t attr;
    void *low;
    size_t size, guard = 0;
    if (pthread_getattr_np(pthread_self(), &attr))
        return range;
    if (!pthread_attr_getstack(&attr, &low, &size) && !pthread_attr_getguardsize(&attr, &guard) && size > guard) {
        range.low = (uintptr_t)low + guard;
        range.size = size - guard;
    }
    pthread_attr_destroy(&attr);
    return range;
}

bool tt__stack_has_room(size_t *size) {
    static _Thread_local stack_range range;
    char here;
    if (!range.asked)
        range = ask_range();
    *size = range.size;
    size_t left = (uintptr_t)&here - range.low, enough = range.size / 2 < ENOUGH ? range.size / 2 : ENOUGH;
    return left >= range.size || left >= enough; /* left >= size: this is another stack */
}
