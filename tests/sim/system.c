/* Stands in for the clock, and for the parts of src/base that ask the machine: threads, random numbers, its name, its
 * memory. */
#include "sim/history.h"
#include "sim/keeper.h"
#include "sim/verdict.h"
#include "sim/world.h"

#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "base/process/limits.h"
#include "base/process/threads.h"
#include "base/random_bytes.h"

#include <stdio.h>
#include <time.h>

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

/* ---- time */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    sim_agent *agent = sim_agent_now();
    int64_t ns = sim_now_ns();
    if (agent) { /* reading a clock takes time, so no two readings are equal */
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

/* ---- threads */

tt_status tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg, const char *what) {
    (void)what;
    sim_task_start(sim_agent_now(), run, arg, thread);
    return TT_OK;
}

void tt__thread_join(pthread_t thread) { sim_join(thread); }
void tt__thread_is_ours(void) {}
int tt__program_threads(void) { return 1; }
bool tt__program_has_ended(void) { return false; }
void tt__cond_init(pthread_cond_t *condition) { (void)condition; }

/* ---- chance, and what depends on the machine */

tt_status tt__random_bytes(void *bytes, size_t size) {
    static sim_random nobody;
    sim_agent *agent = sim_agent_now();
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)sim_next(agent ? &agent->random : &nobody);
    return TT_OK;
}

void tt__random_seed(void *bytes, size_t size) { tt_ignore(tt__random_bytes(bytes, size)); }

void tt__host_name(char *name, size_t size) {
    const sim_agent *agent = sim_agent_now();
    snprintf(name, size, "host-%d", agent ? agent->machine : -1);
}

long long tt__cgroup_memory_kills(const char *root) {
    (void)root;
    return 0;
}

size_t tt__cgroup_memory_limit(const char *root) {
    (void)root;
    return SIZE_MAX;
}
