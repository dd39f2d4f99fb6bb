/* The system calls of the product that have to do with time, processes, chance and threads. */
#include "sim/history.h"
#include "sim/keeper.h"
#include "sim/verdict.h"
#include "sim/world.h"

#include "base/machine/clock.h"
#include "base/process/threads.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
time_t __wrap_time(time_t *t);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
tt_status __wrap_tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg, const char *what);
int __wrap_pthread_join(pthread_t thread, void **result);
tt__ticks_kind __wrap_tt__ticks_init(void);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
int __wrap_gethostname(char *name, size_t size);
int __wrap___gethostname_chk(char *name, size_t size, size_t room);
int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
int __wrap_prctl(int option, ...);
int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old);
long long __wrap_tt__cgroup_memory_kills(const char *root);
size_t __wrap_tt__cgroup_memory_limit(const char *root);
char __wrap_tt__proc_state(pid_t pid);

/* ---- time */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    sim_agent *agent = sim_agent_now();
    int64_t ns = sim_now_ns();
    if (agent) { /* a look at a clock takes its time: no two see the same */
        agent->monotonic_ns++;
        agent->realtime_ns++;
    }
    if (clock == CLOCK_REALTIME)
        ns += SIM_EPOCH_NS + (agent ? agent->realtime_ns : 0);
    else
        ns += agent ? agent->monotonic_ns : 0;
    *t = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

time_t __wrap_time(time_t *t) {
    struct timespec now;
    __wrap_clock_gettime(CLOCK_REALTIME, &now);
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    (void)left;
    int64_t until = sim_now_ns() + time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
    while (sim_now_ns() < until)
        sim_wait(until);
    return 0;
}

/* The processor's counter would be the machine's time. */
tt__ticks_kind __wrap_tt__ticks_init(void) { return TT__TICKS_MONOTONIC; }

/* ---- threads */

tt_status __wrap_tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg, const char *what) {
    (void)what;
    sim_task_start(sim_agent_now(), run, arg, thread);
    return TT_OK;
}

int __wrap_pthread_join(pthread_t thread, void **result) {
    if (result)
        *result = NULL;
    sim_join(thread);
    return 0;
}

/* ---- chance, and what depends on the machine */

ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags) {
    static sim_random nobody;
    sim_agent *agent = sim_agent_now();
    (void)flags;
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)sim_next(agent ? &agent->random : &nobody);
    return (ssize_t)size;
}

int __wrap_gethostname(char *name, size_t size) {
    const sim_agent *agent = sim_agent_now();
    snprintf(name, size, "host-%d", agent ? agent->machine : -1);
    return 0;
}

int __wrap___gethostname_chk(char *name, size_t size, size_t room) {
    return __wrap_gethostname(name, size < room ? size : room);
}

long long __wrap_tt__cgroup_memory_kills(const char *root) {
    (void)root;
    return 0;
}

size_t __wrap_tt__cgroup_memory_limit(const char *root) {
    (void)root;
    return SIZE_MAX;
}

char __wrap_tt__proc_state(pid_t pid) {
    (void)pid;
    return 'S';
}

/* ---- processes. A launcher kills its keeper, at most. */

int __wrap_kill(pid_t pid, int sig) {
    if (sig == SIGKILL)
        sim_keeper_kill_pid(pid);
    return 0;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options) {
    (void)options;
    sim_keeper_wait(pid);
    if (status)
        *status = 0;
    return pid;
}

int __wrap_prctl(int option, ...) {
    (void)option;
    return 0;
}

int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old) {
    (void)how;
    (void)set;
    if (old)
        sigemptyset(old);
    return 0;
}
