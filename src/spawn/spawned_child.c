/* A child of tt_spawn(), from its fork to its end.
 *
 * Its main thread is the copy of the thread that forked it. libgomp believes that this thread has others, which don't
 * exist here: its next parallel region would wait for them forever. So it runs nothing of the program's but watches the
 * parent, and a new thread, unknown to OpenMP, runs the function. The main thread must stay, as `arg` may point to its
 * stack: glibc gives the stacks of the parent's other threads to new ones. */
#include "spawn/process_context.h"

#include "base/machine/clock.h"
#include "base/process/fork.h"
#include "base/process/limits.h"
#include "base/process/threads.h"
#include "base/process/waits.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { ORPHAN_GRACE_MS = 5000, LOOK_MS = 100 };

static struct {
    pid_t pid; /* the child's own; a process that the child forks has a copy of this, but another pid */
    int rank;
    tt__child_report *report;
    const tt__child_start *start;
} me;

void tt__flush_streams(void) {
    /* fflush(NULL) takes the lock of every stream, also that of one that somebody waits to read from. */
    if (ftrylockfile(stdin)) {
        fflush(stdout);
        fflush(stderr);
        return;
    }
    funlockfile(stdin);
    fflush(NULL);
}

/* ---- the end */

static void leave_last_error(tt__child_report *report) {
    report->status = tt_last_status();
    if (!report->status)
        return;
    snprintf(report->last_error, sizeof report->last_error, "%s: %s", tt_status_name(report->status), tt_last_error());
    if (report->status == TT_ERR_PEER)
        report->secondary = true;
}

/* Take a report that would go to a launcher's error file. */
static void take_report(const char *message, bool secondary) {
    tt__child_report *report = me.report;
    if (getpid() != me.pid || atomic_exchange(&report->telling, 1))
        return;
    if (!report->has_told || (!secondary && !report->secondary)) { /* the last cause, as in a launcher's error file */
        snprintf(report->told, sizeof report->told, "%s", message);
        if (secondary)
            report->secondary = true;
        report->has_told = 1;
    }
    report->telling = 0;
}

/* The child's first handler of on_exit(): it runs after those that the child registers, and instead of those that the
 * parent had. Also in processes that the child forks. */
static void end_child(int code, void *unused) {
    (void)unused;
    if (getpid() == me.pid) {
        me.report->code = code & 0xff;
        if (me.report->code)
            leave_last_error(me.report);
        me.report->ended_ns = tt__now_ns();
        me.report->has_ended = 1;
    }
    tt__flush_streams();
    _exit(code);
}

/* ---- the function's thread */

/* OpenMP's runtimes read their environment in the parent. This call sets the number for the calling thread. */
static void divide_openmp(int threads) {
    static const char *const runtimes[] = {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"};
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
        void *runtime = dlopen(runtimes[i], RTLD_NOW | RTLD_NOLOAD), *found;
        void (*set_num_threads)(int);
        if (!runtime)
            continue;
        found = dlsym(runtime, "omp_set_num_threads");
        memcpy(&set_num_threads, &found, sizeof found); /* a function's address, as POSIX has it */
        if (found)
            set_num_threads(threads);
        dlclose(runtime);
    }
}

static void end_by_pthread_exit(void *unused) {
    (void)unused;
    exit(0);
}

static void *child_thread(void *unused) {
    int code = 0;
    (void)unused;
    if (me.start->threads)
        divide_openmp(me.start->threads);
    pthread_sigmask(SIG_SETMASK, &me.start->mask, NULL);
    pthread_cleanup_push(end_by_pthread_exit, NULL);
    code = me.start->fn(me.rank, me.start->arg);
    pthread_cleanup_pop(0);
    exit(code >= 0 && code <= 255 ? code : 1);
    return NULL;
}

/* ---- the main thread */

/* Reset signals that the parent's code handles to their default effect, as exec does. Handlers that say where the
 * process crashed stay. */
static void reset_handlers(void) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t kept;
    sigemptyset(&kept);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaddset(&kept, crashes[i]);
    for (int sig = 1; sig <= SIGRTMAX; sig++) {
        struct sigaction action;
        if (sigismember(&kept, sig) == 1 || sigaction(sig, NULL, &action))
            continue;
        bool ignored = !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_IGN;
        bool caught = (action.sa_flags & SA_SIGINFO) || (action.sa_handler != SIG_DFL && !ignored);
        if (caught)
            signal(sig, SIG_DFL);
    }
}

/* Wait until the parent is gone, which getppid() says: the program may close the pidfd, as daemons close all
 * descriptors, and use its number for something else. */
static void watch_parent(void) {
    struct pollfd parent = {.fd = me.start->parent, .events = POLLIN};
    for (;;) {
        bool interrupted = poll(&parent, 1, -1) < 0 && errno == EINTR;
        if (getppid() != me.start->parent_pid)
            return;
        if (!interrupted)
            tt__sleep_ms(LOOK_MS);
    }
}

static void end_orphan(void) {
    int64_t deadline = tt__deadline_ms(ORPHAN_GRACE_MS);
    kill(getpid(), SIGTERM);
    while (tt__left_ms(deadline))
        tt__sleep_ms(tt__left_ms(deadline));
    kill(getpid(), SIGKILL);
}

static void wait_to_go(void) {
    struct pollfd fds[] = {{.fd = me.start->go, .events = POLLIN}, {.fd = me.start->parent, .events = POLLIN}};
    uint64_t one;
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    if (!fds[0].revents || read(me.start->go, &one, sizeof one) != sizeof one)
        _exit(1); /* the parent is gone */
    close(me.start->go);
}

static tt_status set_rank_number(const char *name, int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    return setenv(name, text, 1) ? tt__fail(TT_ERR_MEMORY, "no memory to set %s", name) : TT_OK;
}

/* Set what torchrun's workers have, and drop what an outer launcher said of the parent. */
static tt_status set_rank_environment(void) {
    static const char *const outer[] = {"TT_JOB_SOCKET",       "TORCHELASTIC_RESTART_COUNT",
                                        "TORCHELASTIC_RUN_ID", "GROUP_RANK",
                                        "GROUP_WORLD_SIZE",    "ROLE_RANK",
                                        "ROLE_WORLD_SIZE",     "TT_ROUND",
                                        "TT_FRESH_STORE"};
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
        unsetenv(outer[i]);
    TT__TRY(set_rank_number("RANK", me.rank));
    TT__TRY(set_rank_number("LOCAL_RANK", me.rank));
    TT__TRY(set_rank_number("WORLD_SIZE", me.start->nprocs));
    TT__TRY(set_rank_number("LOCAL_WORLD_SIZE", me.start->nprocs));
    TT__TRY(set_rank_number("MASTER_PORT", me.start->shared->port));
    if (setenv("MASTER_ADDR", "127.0.0.1", 1) || setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1))
        return tt__fail(TT_ERR_MEMORY, "no memory to set MASTER_ADDR");
    return TT_OK;
}

/* Set a stack of its own, above a page without access. glibc would take that of one of the parent's threads, to which
 * `arg` may point. */
static int set_own_stack(pthread_attr_t *attr) {
    size_t size = 0, guard = (size_t)sysconf(_SC_PAGESIZE);
    int errnum = pthread_attr_getstacksize(attr, &size);
    char *memory = mmap(NULL, guard + size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (errnum || memory == MAP_FAILED)
        return errnum ? errnum : errno;
    return mprotect(memory, guard, PROT_NONE) ? errno : pthread_attr_setstack(attr, memory + guard, size);
}

static tt_status start_function(void) {
    pthread_t thread;
    pthread_attr_t attr;
    int errnum = pthread_attr_init(&attr);
    if (!errnum)
        errnum = set_own_stack(&attr);
    if (!errnum)
        errnum = pthread_create(&thread, &attr, child_thread, NULL);
    if (errnum)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum,
                              "can't start the thread of the function (ulimit -u limits a "
                              "user's processes and threads, pids.max a control group's, ulimit -v and -d the memory "
                              "of stacks)");
    pthread_detach(thread);
    return TT_OK;
}

static tt_status become_process(void) {
    if (on_exit(end_child, NULL))
        return tt__fail(TT_ERR_MEMORY, "no memory for a handler of exit()");
    /* Sent when the thread that forked ends, which the parent may survive: it only wakes a stopped child, whose main
     * thread then looks. */
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    reset_handlers();
    tt__set_report_rank(me.rank);
    tt__error_file_divert(take_report);
    if (me.start->threads)
        tt__set_cpu_share(me.start->threads);
    tt__thread_is_ours();
    tt__new_process_begins();
    return me.start->shared->port ? set_rank_environment() : TT_OK;
}

void tt__spawned_child_run(const tt__child_start *start, int rank) {
    me.pid = getpid();
    me.rank = rank;
    me.report = &start->shared->of[rank];
    me.start = start;
    wait_to_go();
    tt_clear_error();
    if (become_process() || start_function()) {
        leave_last_error(me.report);
        _exit(1);
    }
    watch_parent();
    end_orphan();
    _exit(1);
}
