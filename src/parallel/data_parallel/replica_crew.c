/* Threads that run one task together, each as one replica. */
#include "parallel/data_parallel/replicas.h"

#include "base/error.h"
#include "base/process/threads.h"
#include "nn/module.h"
#include "tensor/device/parallel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct member {
    tt__replica_crew *crew;
    int number; /* 1, 2, ... */
    pthread_t thread;
    tt_scope **ending; /* to be freed before its next task */
    int ending_count;
} member;

/* One round: `task` for 0..n-1. */
typedef struct task_round {
    void (*task)(void *user, int i);
    void *user;
    int n, limit;
} task_round;

struct tt__replica_crew {
    _Atomic int refs;
    pid_t process; /* the one that has the threads */
    int started;   /* how many threads were started */
    int room;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t begun, done;
    uint64_t round; /* number of `now` */
    task_round now;
    int working;
    bool stops;
    member members[]; /* (room); number 0 is the caller's */
};

static void end_scopes(tt_scope **scopes, int count) {
    for (int i = 0; i < count; i++)
        tt_scope_free(scopes[i]);
    free(scopes);
}

static void run_one(const task_round *r, int i) {
    tt__replica before = tt__replica_set((tt__replica){i, r->n});
    int limit = tt__parallel_limit(r->limit);
    r->task(r->user, i);
    tt__parallel_limit(limit);
    tt__replica_set(before);
}

/* Wait for a round after `*seen`. False: there will be none. */
static bool await_task_round(member *m, uint64_t *seen, task_round *r) {
    tt__replica_crew *crew = m->crew;
    pthread_mutex_lock(&crew->lock);
    while (crew->round == *seen && !crew->stops)
        pthread_cond_wait(&crew->begun, &crew->lock);
    bool goes_on = !crew->stops;
    tt_scope **ending = m->ending;
    int ending_count = m->ending_count;
    m->ending = NULL;
    m->ending_count = 0;
    *seen = crew->round;
    *r = crew->now;
    pthread_mutex_unlock(&crew->lock);
    end_scopes(ending, ending_count);
    return goes_on;
}

static void *work_in_rounds(void *arg) {
    member *m = arg;
    task_round r;
    for (uint64_t seen = 0; await_task_round(m, &seen, &r);) {
        if (m->number >= r.n)
            continue;
        run_one(&r, m->number);
        pthread_mutex_lock(&m->crew->lock);
        if (--m->crew->working == 0)
            pthread_cond_signal(&m->crew->done);
        pthread_mutex_unlock(&m->crew->lock);
    }
    return NULL;
}

static bool has_threads(const tt__replica_crew *crew) { return crew->process == getpid(); }

static void crew_free(tt__replica_crew *crew) {
    if (has_threads(crew)) {
        pthread_mutex_lock(&crew->lock);
        crew->stops = true;
        pthread_cond_broadcast(&crew->begun);
        pthread_mutex_unlock(&crew->lock);
        for (int i = 1; i <= crew->started; i++)
            pthread_join(crew->members[i].thread, NULL);
        pthread_cond_destroy(&crew->begun);
        pthread_cond_destroy(&crew->done);
        pthread_mutex_destroy(&crew->lock);
    }
    for (int i = 0; i < crew->room; i++)
        end_scopes(crew->members[i].ending, crew->members[i].ending_count);
    free(crew);
}

tt__replica_crew *tt__replica_crew_new(int threads) {
    tt__replica_crew *crew = calloc(1, sizeof *crew + (size_t)threads * sizeof(member));
    if (!crew)
        return tt__fail_null(TT_ERR_MEMORY, "tt_data_parallel: no memory for %d threads", threads);
    crew->refs = 1;
    crew->process = getpid();
    crew->room = threads;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->begun, NULL);
    pthread_cond_init(&crew->done, NULL);
    for (int i = 1; i < threads; i++) {
        member *m = &crew->members[i];
        *m = (member){.crew = crew, .number = i};
        if (tt__thread_create(&m->thread, work_in_rounds, m, "the thread of a replica")) {
            crew_free(crew);
            return NULL;
        }
        crew->started = i;
    }
    return crew;
}

tt__replica_crew *tt__replica_crew_ref(tt__replica_crew *crew) {
    atomic_fetch_add(&crew->refs, 1);
    return crew;
}

void tt__replica_crew_unref(tt__replica_crew *crew) {
    if (crew && atomic_fetch_sub(&crew->refs, 1) == 1)
        crew_free(crew);
}

void tt__replica_crew_run(tt__replica_crew *crew, int n, void (*task)(void *user, int i), void *user) {
    int threads = tt_get_num_threads();
    const task_round r = {task, user, n, threads > n ? threads / n : 1};
    if (n == 1 || !has_threads(crew)) {
        for (int i = 0; i < n; i++)
            run_one(&r, i);
        return;
    }
    pthread_mutex_lock(&crew->lock);
    crew->now = r;
    crew->round++;
    crew->working = n - 1;
    pthread_cond_broadcast(&crew->begun);
    pthread_mutex_unlock(&crew->lock);
    run_one(&r, 0);
    pthread_mutex_lock(&crew->lock);
    while (crew->working > 0)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

/* Append a scope to those that the thread frees before its next task. False: no memory. */
static bool add_ending(member *m, tt_scope *scope) {
    tt_scope **ending = reallocarray(m->ending, (size_t)m->ending_count + 1, sizeof *ending);
    if (!ending)
        return false;
    m->ending = ending;
    ending[m->ending_count++] = scope;
    return true;
}

void tt__crew_end_scope(tt__replica_crew *crew, int i, tt_scope *scope) {
    if (!scope)
        return;
    bool later = false;
    if (i > 0 && has_threads(crew)) {
        pthread_mutex_lock(&crew->lock);
        later = add_ending(&crew->members[i], scope);
        pthread_mutex_unlock(&crew->lock);
    }
    if (!later)
        tt_scope_free(scope);
}
