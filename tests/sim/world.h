/* A world with one thread of control: virtual time, events, and the threads of virtual agents, of which exactly one
 * runs at a time. Whoever waits takes the next event out of the queue and hands the baton to the thread that it is for,
 * so that a seed decides everything.
 *
 * An agent is a launcher process on a machine, with its own clocks, or a worker that survives the loss of others
 * (trainer.h). One that is started again is another agent. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "base/bytes.h"
#include "sim/random.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_NEVER INT64_MAX
#define SIM_MS INT64_C(1000000)
#define SIM_EPOCH_NS (INT64_C(1800000000) * 1000000000) /* the time of day at which a world begins */

typedef enum sim_agent_state { SIM_OUTSIDE, SIM_UP, SIM_ENDED, SIM_CRASHED } sim_agent_state;

typedef struct sim_agent {
    int node;       /* the agent's number; in a fixed set its node's number */
    int machine;    /* 0: where the store is served */
    int generation; /* of the store to which it connected last */
    sim_agent_state state;
    bool is_worker; /* one of trainer.h, not a launcher */
    bool machine_dead;
    int64_t frozen_until_ns;
    int64_t monotonic_ns, realtime_ns; /* how much its clocks are ahead of the world's */
    sim_random random;
    int signal_fd;
    int watch_fd;     /* of the job's socket: readable when a worker has shown its recorder */
    int64_t requests; /* requests that its launcher has sent to the store */
} sim_agent;

typedef struct sim_task sim_task;

/* Begin the world: the calling thread becomes the task of no agent. */
void sim_world_begin(bool trace);

int64_t sim_now_ns(void);

/* The agent whose thread runs; NULL: none's. */
sim_agent *sim_agent_now(void);
sim_task *sim_task_now(void);

/* Call run(arg) at a time, with whatever thread is there: it must not wait. */
void sim_at(int64_t when_ns, void (*run)(void *arg), void *arg);

/* Start a thread of an agent. */
sim_task *sim_task_start(sim_agent *agent, void *(*run)(void *), void *arg, pthread_t *thread);

/* Wait until the task is woken or the time has come. If the agent has crashed, this never returns; if it is frozen,
 * later. */
void sim_wait(int64_t until_ns);
/* Let the task go on, if it waits. NULL is allowed. */
void sim_wake(sim_task *task);

/* Wait until the agent's thread has returned. */
void sim_join(pthread_t thread);

/* Draw how long a thread of the agent waits for a processor. */
int64_t sim_latency_ns(sim_agent *agent);

/* Print a line of the trace, if there is a trace. */
void sim_trace(int node, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sim_tracing(void);

#endif
