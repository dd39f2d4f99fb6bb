#include "data/loader/crew.h"

#include "base/error.h"
#include "base/process/threads.h"

#include <stdlib.h>
#include <unistd.h>

/* Jobs have numbers that only grow: taken <= begun <= added <= taken + slots. Job j is in slot j % slots. */
struct tt__loader_crew {
    tt__loader_crew_work work;
    void *user;
    pid_t process;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t there_is_work, one_is_done;
    int64_t slots, taken, begun, added;
    int64_t running; /* jobs in workers' hands */
    bool *done;      /* (slots) */
    bool ends;
    int threads;
    struct crew_member {
        tt__loader_crew *crew;
        int number;
        pthread_t thread;
    } member[];
};

/* ---- workers ---- */

static void *crew_run(void *arg) {
    const struct crew_member *me = arg;
    tt__loader_crew *c = me->crew;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->ends && c->begun == c->added)
            pthread_cond_wait(&c->there_is_work, &c->lock);
        if (c->ends)
            break;
        int64_t slot = c->begun++ % c->slots;
        c->running++;
        pthread_mutex_unlock(&c->lock);
        c->work(c->user, me->number, slot);
        pthread_mutex_lock(&c->lock);
        c->running--;
        c->done[slot] = true;
        pthread_cond_signal(&c->one_is_done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- making ---- */

static tt__loader_crew *crew_new(int workers, int64_t slots, tt__loader_crew_work work, void *user) {
    tt__loader_crew *c = calloc(1, sizeof *c + (size_t)workers * sizeof *c->member);
    bool *done = calloc((size_t)slots, sizeof *done);
    if (!c || !done) {
        free(c);
        free(done);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for %d threads that make batches", workers);
    }
    c->work = work;
    c->user = user;
    c->process = getpid();
    c->slots = slots;
    c->done = done;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->there_is_work, NULL);
    pthread_cond_init(&c->one_is_done, NULL);
    return c;
}

tt_status tt__loader_crew_start(tt__loader_crew **out, int workers, int64_t slots, tt__loader_crew_work work,
                                void *user) {
    tt__loader_crew *c = crew_new(workers, slots, work, user);
    *out = NULL;
    if (!c)
        return tt_last_status();
    for (; c->threads < workers; c->threads++) {
        struct crew_member *m = &c->member[c->threads];
        m->crew = c;
        m->number = c->threads;
        tt_status status = tt__thread_create(&m->thread, crew_run, m, "a thread that makes batches");
        if (status) {
            tt__loader_crew_end(c);
            return status;
        }
    }
    *out = c;
    return TT_OK;
}

bool tt__crew_is_elsewhere(const tt__loader_crew *crew) { return crew->process != getpid(); }

/* End the threads. A forked child has none, and its locks may stay taken for good. */
static void crew_join(tt__loader_crew *c) {
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    pthread_cond_broadcast(&c->there_is_work);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->threads; i++)
        pthread_join(c->member[i].thread, NULL);
    pthread_cond_destroy(&c->there_is_work);
    pthread_cond_destroy(&c->one_is_done);
    pthread_mutex_destroy(&c->lock);
}

void tt__loader_crew_end(tt__loader_crew *crew) {
    if (!crew)
        return;
    if (!tt__crew_is_elsewhere(crew))
        crew_join(crew);
    free(crew->done);
    free(crew);
}

/* ---- jobs ---- */

int64_t tt__loader_crew_free_slot(tt__loader_crew *crew) {
    pthread_mutex_lock(&crew->lock);
    int64_t slot = crew->added - crew->taken < crew->slots ? crew->added % crew->slots : -1;
    pthread_mutex_unlock(&crew->lock);
    return slot;
}

void tt__loader_crew_add(tt__loader_crew *crew) {
    pthread_mutex_lock(&crew->lock);
    crew->done[crew->added++ % crew->slots] = false;
    pthread_cond_signal(&crew->there_is_work);
    pthread_mutex_unlock(&crew->lock);
}

int64_t tt__loader_crew_take(tt__loader_crew *crew) {
    int64_t slot = -1;
    pthread_mutex_lock(&crew->lock);
    if (crew->taken < crew->added) {
        slot = crew->taken % crew->slots;
        while (!crew->done[slot])
            pthread_cond_wait(&crew->one_is_done, &crew->lock);
        crew->taken++;
    }
    pthread_mutex_unlock(&crew->lock);
    return slot;
}

void tt__loader_crew_cancel(tt__loader_crew *crew) {
    pthread_mutex_lock(&crew->lock);
    crew->added = crew->begun;
    while (crew->running)
        pthread_cond_wait(&crew->one_is_done, &crew->lock);
    crew->taken = crew->begun;
    pthread_mutex_unlock(&crew->lock);
}
