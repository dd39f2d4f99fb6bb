#include "sim/world.h"

#include "base/build.h"
#include "sim/verdict.h"

#include <errno.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = TT__ASAN || TT__TSAN ? 1 << 20 : 256 << 10 };
enum { MOST_EVENTS_AT_ONE_TIME = 20000000 };

struct sim_task {
    sim_task *next;
    sim_agent *agent;
    pthread_t thread;
    sem_t go;
    void *(*run)(void *);
    void *arg;
    unsigned turn; /* number of its wait: wake-ups for an earlier wait are ignored */
    bool woken, ended;
    sim_task *joiner;
};

typedef struct event {
    int64_t when_ns;
    uint64_t number;
    void (*run)(void *);
    void *arg;
    sim_task *task;
    unsigned turn;
} event;

static struct {
    event *heap;
    size_t n, room;
    uint64_t number, idle;
    int64_t now_ns;
    sim_task *current, *tasks;
    bool trace;
} world;

/* ---- the queue */

static bool is_before(const event *a, const event *b) {
    return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->number < b->number;
}

static void push_event(event new) {
    if (world.n == world.room) {
        world.room = world.room ? 2 * world.room : 1024;
        world.heap = sim_memory(realloc(world.heap, world.room * sizeof *world.heap));
    }
    new.number = world.number++;
    size_t i = world.n++;
    for (; i && is_before(&new, &world.heap[(i - 1) / 2]); i = (i - 1) / 2)
        world.heap[i] = world.heap[(i - 1) / 2];
    world.heap[i] = new;
}

static event pop_event(void) {
    event first = world.heap[0], last = world.heap[--world.n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < world.n; i = child) {
        child += child + 1 < world.n && is_before(&world.heap[child + 1], &world.heap[child]);
        if (!is_before(&world.heap[child], &last))
            break;
        world.heap[i] = world.heap[child];
    }
    world.heap[i] = last;
    return first;
}

static void advance_to(int64_t when_ns) {
    if (when_ns > world.now_ns) {
        world.now_ns = when_ns;
        world.idle = 0;
    } else if (++world.idle > MOST_EVENTS_AT_ONE_TIME) {
        sim_fail("time", "%d events happened without a moment passing", (int)MOST_EVENTS_AT_ONE_TIME);
    }
}

/* Let events happen until a thread is to go on; return its task. */
static sim_task *next_task(void) {
    for (;;) {
        if (!world.n)
            sim_fail("ends", "nothing can happen any more, but there are launchers that wait");
        event e = pop_event();
        advance_to(e.when_ns);
        sim_result->digest = (sim_result->digest ^ (uint64_t)e.when_ns) * UINT64_C(0x100000001B3);
        if (!e.task) {
            e.run(e.arg);
            continue;
        }
        const sim_agent *agent = e.task->agent;
        if (e.turn != e.task->turn || e.task->ended || (agent && agent->state == SIM_CRASHED))
            continue;
        if (agent && agent->frozen_until_ns > world.now_ns) {
            e.when_ns = agent->frozen_until_ns;
            push_event(e);
            continue;
        }
        return e.task;
    }
}

/* ---- threads */

static void wait_for_baton(sim_task *task) {
    while (sem_wait(&task->go) && errno == EINTR)
        ;
}

static void give_baton(sim_task *task) {
    world.current = task;
    sem_post(&task->go);
}

int64_t sim_latency_ns(sim_agent *agent) {
    if (!agent)
        return 0;
    int64_t draw = sim_below(&agent->random, 1000);
    return draw < 900   ? sim_between(&agent->random, 5000, 100000)
           : draw < 998 ? sim_between(&agent->random, 100000, 3 * SIM_MS)
                        : sim_between(&agent->random, 3 * SIM_MS, 30 * SIM_MS);
}

void sim_wait(int64_t until_ns) {
    sim_task *self = world.current;
    self->woken = false;
    self->turn++;
    if (until_ns != SIM_NEVER)
        push_event((event){.when_ns = until_ns + sim_latency_ns(self->agent), .task = self, .turn = self->turn});
    sim_task *next = next_task();
    if (next != self) {
        give_baton(next);
        wait_for_baton(self);
    }
    self->turn++;
}

void sim_wake(sim_task *task) {
    if (!task || task->woken || task->ended)
        return;
    task->woken = true;
    push_event((event){.when_ns = world.now_ns + sim_latency_ns(task->agent), .task = task, .turn = task->turn});
}

static void *task_main(void *arg) {
    sim_task *self = arg;
    wait_for_baton(self);
    self->turn++;
    void *result = self->run(self->arg);
    self->ended = true;
    sim_wake(self->joiner);
    give_baton(next_task());
    return result;
}

sim_task *sim_task_start(sim_agent *agent, void *(*run)(void *), void *arg, pthread_t *thread) {
    sim_task *task = sim_memory(calloc(1, sizeof *task));
    pthread_attr_t attributes;
    *task = (sim_task){.next = world.tasks, .agent = agent, .run = run, .arg = arg};
    world.tasks = task;
    sem_init(&task->go, 0, 0);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&task->thread, &attributes, task_main, task))
        sim_fail("machine", "no thread can be started for an agent: %s", strerror(errno));
    pthread_attr_destroy(&attributes);
    if (thread)
        *thread = task->thread;
    else
        pthread_detach(task->thread);
    sim_wake(task);
    return task;
}

void sim_join(pthread_t thread) {
    sim_task *task = world.tasks;
    while (task && !pthread_equal(task->thread, thread))
        task = task->next;
    while (task && !task->ended) {
        task->joiner = world.current;
        sim_wait(SIM_NEVER);
    }
    pthread_join(thread, NULL);
}

/* ---- the rest */

void sim_world_begin(bool trace) {
    static sim_task outside;
    world.trace = trace;
    world.now_ns = 0;
    sem_init(&outside.go, 0, 0);
    outside.thread = pthread_self();
    world.current = world.tasks = &outside;
}

int64_t sim_now_ns(void) { return world.now_ns; }
sim_task *sim_task_now(void) { return world.current; }
sim_agent *sim_agent_now(void) { return world.current->agent; }

void sim_at(int64_t when_ns, void (*run)(void *), void *arg) {
    push_event((event){.when_ns = when_ns, .run = run, .arg = arg});
}

bool sim_tracing(void) { return world.trace; }

void sim_trace(int node, const char *format, ...) {
    if (!world.trace)
        return;
    va_list args;
    va_start(args, format);
    printf("%11.6f  ", (double)world.now_ns / 1e9);
    if (node < 0)
        printf("         ");
    else
        printf("node %-3d ", node);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}
