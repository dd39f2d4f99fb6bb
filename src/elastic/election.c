#include "elastic/election.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/threads.h"
#include "elastic/seat.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Beats in a lease's time, and the shortest of those. */
enum { BEATS = 4, LEAST_TTL_MS = 2000 };

struct tt__election {
    tt__job *job;
    char *master_addr; /* (NI_MAXHOST) shared with the children */
    tt__seat *seat;
    tt_store_server *server; /* until it is taken */
    char host[NI_MAXHOST];   /* what was found */
    int port;
    bool own;
    int64_t ttl_ms;
    char value[TT__SEAT_NAME_SIZE]; /* this process's own */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    bool stop, lost;
    int64_t confirmed_ms; /* when the last beat began that reached the lease */
};

/* A machine that sleeps does not keep its lease. */
static int64_t awake_or_not_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

tt_status tt__election_new(tt__election **out, tt__job *job) {
    tt__election *e = *out = calloc(1, sizeof *e);
    if (!e)
        return tt__fail(TT_ERR_MEMORY, "no memory to look for the job's coordinator");
    e->job = job;
    if (tt__seat_new(&e->seat, job)) {
        free(e);
        *out = NULL;
        return TT_ERR_MEMORY;
    }
    void *shared = mmap(NULL, NI_MAXHOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        tt__seat_free(e->seat);
        free(e);
        *out = NULL;
        return tt__fail_errno(TT_ERR_MEMORY, errno, "no memory to look for the job's coordinator");
    }
    e->master_addr = shared;
    snprintf(e->master_addr, NI_MAXHOST, "%s", job->master_addr);
    job->master_addr = e->master_addr;
    pthread_mutex_init(&e->lock, NULL);
    tt__cond_init(&e->wake);
    return TT_OK;
}

const char *tt__election_keeper(const tt__election *e) {
    return e->job->etcd->replicas ? "the replicated store" : "etcd";
}

const char *tt__election_host(const tt__election *e) { return e->host; }

/* ---- the lease's thread */

static void note_confirmed(tt__election *e, int64_t began_ms, bool lost) {
    pthread_mutex_lock(&e->lock);
    e->confirmed_ms = began_ms;
    e->lost = e->lost || lost;
    pthread_mutex_unlock(&e->lock);
}

/* Keep the lease, and see that its keeper still names this process. Where it names nobody, as after a loss of its data,
 * and nobody has come yet, this process goes on. */
static tt_status beat_once(tt__election *e) {
    char there[TT__SEAT_NAME_SIZE];
    int64_t began_ms = awake_or_not_ms();
    TT__TRY(tt__seat_keep(e->seat, e->ttl_ms));
    TT__TRY(tt__seat_find(e->seat, there));
    if (!*there) {
        TT__TRY(tt__seat_take(e->seat, e->value, there));
        tt__log(TT_LOG_WARNING, "%s did not name the coordinator any more: it does again", tt__election_keeper(e));
    }
    note_confirmed(e, began_ms, strcmp(there, e->value) != 0);
    return TT_OK;
}

static void *beat_until_stopped(void *arg) {
    tt__election *e = arg;
    bool missed = false;
    pthread_mutex_lock(&e->lock);
    while (!e->stop && !e->lost) {
        struct timespec until = tt__timespec_ms(tt__deadline_ms(e->ttl_ms / BEATS));
        int error = 0;
        while (!e->stop && error != ETIMEDOUT)
            error = pthread_cond_timedwait(&e->wake, &e->lock, &until);
        if (e->stop)
            break;
        pthread_mutex_unlock(&e->lock);
        tt_status status = beat_once(e);
        if (status)
            tt__log(TT_LOG_DEBUG, "%s: %s", tt__election_keeper(e), tt_last_error());
        else if (missed)
            tt__log(TT_LOG_DEBUG, "%s is back", tt__election_keeper(e));
        missed = status != TT_OK;
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

tt__election_state tt__election_state_of(tt__election *e) {
    pthread_mutex_lock(&e->lock);
    bool lost = e->lost, late = awake_or_not_ms() - e->confirmed_ms >= e->ttl_ms;
    pthread_mutex_unlock(&e->lock);
    return lost ? TT__ELECTION_LOST : late ? TT__ELECTION_UNSURE : TT__ELECTION_HOLDS;
}

/* ---- the election */

/* Begin to serve a store, under a lease that nobody knows of yet. */
static tt_status stand(tt__election *e) {
    int64_t began_ms = awake_or_not_ms();
    if (!e->server) {
        TT__TRY(tt_store_server_new(&e->server, e->job->bind_addr, 0, .auth = e->job->store_auth,
                                    .max_memory = e->job->store_memory));
        snprintf(e->value, sizeof e->value, "%s %d", e->job->own_addr, tt_store_server_port(e->server));
    }
    e->ttl_ms = e->job->heartbeat_ms < LEAST_TTL_MS ? LEAST_TTL_MS : e->job->heartbeat_ms;
    TT__TRY(tt__seat_keep(e->seat, e->ttl_ms));
    e->ttl_ms = tt__seat_ttl_ms(e->seat);
    note_confirmed(e, began_ms, false);
    return TT_OK;
}

static void step_back(tt__election *e) {
    tt__seat_leave(e->seat);
    tt_store_server_free(e->server);
    e->server = NULL;
}

/* Stand for election. `value` := whom the keeper names then. */
static tt_status elect(tt__election *e, char value[TT__SEAT_NAME_SIZE]) {
    tt_status status = stand(e);
    if (!status)
        status = tt__seat_take(e->seat, e->value, value);
    if (status == TT_ERR_STATE)
        return tt__fail(TT_ERR_TIMEOUT, "etcd ended the lease at once");
    if (status || strcmp(value, e->value) != 0)
        return status;
    e->stop = e->lost = false;
    status = tt__thread_create(&e->thread, beat_until_stopped, e, "the thread that keeps the coordinator's seat");
    e->own = e->started = !status;
    if (!status)
        tt__log(TT_LOG_DEBUG, "serving the store at %s", e->value);
    return status;
}

static tt_status read_name(tt__election *e, const char *value) {
    const char *space = strrchr(value, ' ');
    int port = space ? atoi(space + 1) : 0;
    if (!space || space == value || port < 1 || port > 65535 || space - value >= (int)sizeof e->host)
        return tt__fail(TT_ERR_PROTOCOL, "%s: the key tutti/%s/coordinator: expected \"ADDRESS PORT\", got \"%.100s\"",
                        tt__election_keeper(e), e->job->run_id, value);
    snprintf(e->host, sizeof e->host, "%.*s", (int)(space - value), value);
    e->port = port;
    return TT_OK;
}

tt_status tt__election_look(tt__election *e, int *port, bool *own) {
    char value[TT__SEAT_NAME_SIZE];
    *port = 0;
    *own = false;
    if (!e->own) {
        TT__TRY(tt__seat_open(e->seat));
        TT__TRY(tt__seat_find(e->seat, value));
        bool mine = e->server && !strcmp(value, e->value); /* of a try whose answer was lost */
        if ((!*value || mine) && e->job->serves != 0)
            TT__TRY(elect(e, value));
        if (!*value)
            return TT_OK;
        TT__TRY(read_name(e, value));
        if (!e->own)
            step_back(e);
    }
    *port = e->port;
    *own = e->own;
    return TT_OK;
}

tt_store_server *tt__election_take(tt__election *e, tt__job *job) {
    tt_store_server *server = e->own ? e->server : NULL;
    if (server)
        e->server = NULL;
    snprintf(e->master_addr, NI_MAXHOST, "%s", e->host);
    job->master_port = e->port;
    job->coordinates = e->own;
    return server;
}

/* ---- the end */

static void stop_beats(tt__election *e) {
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (e->started)
        pthread_join(e->thread, NULL);
    e->started = e->own = false;
}

void tt__election_reset(tt__election *e) {
    stop_beats(e);
    step_back(e);
    tt__seat_close(e->seat);
}

void tt__election_free(tt__election *e) {
    if (!e)
        return;
    stop_beats(e);
    tt__seat_over(e->seat);
    tt__election_reset(e);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    tt__seat_free(e->seat);
    munmap(e->master_addr, NI_MAXHOST);
    e->job->master_addr = "";
    free(e);
}
