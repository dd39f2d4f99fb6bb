#include "launch/cluster/election.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "store/etcd/etcd_lease.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define COORDINATOR "coordinator"

/* Beats in a lease's time, and the shortest of those. */
enum { BEATS = 4, LEAST_TTL_MS = 2000 };

/* How long a call to etcd may take while the node's thread or a beat waits for it; and the last one, at the end. */
enum { CALL_MS = 2000, END_MS = 1000 };

enum { NAME_SIZE = NI_MAXHOST + 8 }; /* "ADDRESS PORT" */

struct tt__election {
    tt__job *job;
    char *master_addr;       /* (NI_MAXHOST) shared with the children */
    tt_store *etcd;          /* the job's keys; NULL: not connected */
    tt__etcd_lease *lease;   /* of the key that names this process */
    tt_store_server *server; /* until it is taken */
    char host[NI_MAXHOST];   /* of the coordinator that was found */
    int port;
    bool own;
    int64_t ttl_ms;
    char name[NAME_SIZE]; /* of the store that this process serves */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    bool stop, lost;
    int64_t confirmed_ms; /* when the last beat began that reached the lease */
};

/* The clock by which a lease runs out: it goes on while the machine sleeps. */
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
    void *shared = mmap(NULL, NI_MAXHOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
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

const char *tt__election_host(const tt__election *e) { return e->host; }

/* ---- the key in etcd */

static tt_status connect_etcd(tt__election *e) {
    const tt__etcd_place *place = e->job->etcd;
    char prefix[600];
    if (e->etcd)
        return TT_OK;
    if (snprintf(prefix, sizeof prefix, "tutti/%s", e->job->run_id) >= (int)sizeof prefix)
        return tt__fail(TT_ERR_INVALID, "--rdzv-id: expected a shorter name, got one of %zu bytes",
                        strlen(e->job->run_id));
    return tt_etcd_store(&e->etcd, place->endpoints, .prefix = prefix, .timeout_ms = CALL_MS, .ca_file = place->ca_file,
                         .cert_file = place->cert_file, .key_file = place->key_file);
}

static void take_coordinator(tt_store_value *value, char name[NAME_SIZE]) {
    snprintf(name, NAME_SIZE, "%.*s", (int)value->size, value->size ? (const char *)value->data : "");
    tt_store_value_free(value);
}

/* Read which coordinator etcd names; "": none, or one whose lease has run out. */
static tt_status read_coordinator(tt__election *e, char there[NAME_SIZE]) {
    const char *keys[] = {COORDINATOR};
    bool found = false;
    tt_store_value value = {0};
    *there = '\0';
    TT__TRY(tt_store_check(e->etcd, keys, 1, &found));
    if (!found)
        return TT_OK;
    TT__TRY(tt_store_get(e->etcd, COORDINATOR, &value));
    take_coordinator(&value, there);
    return TT_OK;
}

/* Put this process's name under the key, with its lease, unless the key has a name. `there` := the name that it has
 * then. */
static tt_status put_coordinator(tt__election *e, char there[NAME_SIZE]) {
    tt_store_value value = {0};
    *there = '\0';
    TT__TRY(tt__etcd_compare_set_leased(e->lease, COORDINATOR, "", 0, e->name, strlen(e->name), CALL_MS, &value));
    take_coordinator(&value, there);
    return TT_OK;
}

/* Keep the lease; make one where there is none, or etcd has ended it. */
static tt_status keep_lease(tt__election *e) {
    tt_status status = e->lease ? tt__etcd_lease_beat(e->lease, CALL_MS) : TT_OK;
    if (status == TT_ERR_STATE) {
        tt__log(TT_LOG_DEBUG, "%s", tt_last_error());
        tt__etcd_lease_free(e->lease);
        e->lease = NULL;
        status = TT_OK;
    }
    if (!status && !e->lease)
        status = tt__etcd_lease_new(&e->lease, e->etcd, e->ttl_ms, CALL_MS);
    return status;
}

/* ---- the lease's thread */

static void note_confirmed(tt__election *e, int64_t began_ms, bool lost) {
    pthread_mutex_lock(&e->lock);
    e->confirmed_ms = began_ms;
    e->lost = e->lost || lost;
    pthread_mutex_unlock(&e->lock);
}

/* Keep the lease, and check that etcd still names this process. If it names nobody, as after a loss of its data, this
 * process puts its name there again. */
static tt_status beat_once(tt__election *e) {
    char there[NAME_SIZE];
    int64_t began_ms = awake_or_not_ms();
    TT__TRY(keep_lease(e));
    TT__TRY(read_coordinator(e, there));
    if (!*there) {
        TT__TRY(put_coordinator(e, there));
        tt__log(TT_LOG_WARNING, "etcd did not name the coordinator any more: it does again");
    }
    note_confirmed(e, began_ms, strcmp(there, e->name) != 0);
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
            tt__log(TT_LOG_DEBUG, "etcd: %s", tt_last_error());
        else if (missed)
            tt__log(TT_LOG_DEBUG, "etcd is back");
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

/* Begin to serve a store, and make a lease; the name is not put there yet. */
static tt_status stand(tt__election *e) {
    int64_t began_ms = awake_or_not_ms();
    if (!e->server) {
        TT__TRY(tt_store_server_new(&e->server, e->job->bind_addr, 0, .auth = e->job->store_auth,
                                    .max_memory = e->job->store_memory));
        snprintf(e->name, sizeof e->name, "%s %d", e->job->own_addr, tt_store_server_port(e->server));
    }
    e->ttl_ms = e->job->heartbeat_ms < LEAST_TTL_MS ? LEAST_TTL_MS : e->job->heartbeat_ms;
    TT__TRY(keep_lease(e));
    e->ttl_ms = tt__etcd_lease_ttl_ms(e->lease);
    note_confirmed(e, began_ms, false);
    return TT_OK;
}

static void step_back(tt__election *e) {
    tt__etcd_lease_end(e->lease, END_MS);
    e->lease = NULL;
    tt_store_server_free(e->server);
    e->server = NULL;
}

/* Try to become the coordinator. `there` := the one that etcd names then. */
static tt_status elect(tt__election *e, char there[NAME_SIZE]) {
    tt_status status = stand(e);
    if (!status)
        status = put_coordinator(e, there);
    if (status == TT_ERR_STATE)
        return tt__fail(TT_ERR_TIMEOUT, "etcd ended the lease at once");
    if (status || strcmp(there, e->name) != 0)
        return status;
    e->stop = e->lost = false;
    status = tt__thread_create(&e->thread, beat_until_stopped, e, "the thread that keeps the coordinator's lease");
    e->own = e->started = !status;
    if (!status)
        tt__log(TT_LOG_DEBUG, "serving the store at %s", e->name);
    return status;
}

static tt_status read_name(tt__election *e, const char *value) {
    const char *space = strrchr(value, ' ');
    int port = space ? atoi(space + 1) : 0;
    if (!space || space == value || port < 1 || port > 65535 || space - value >= (int)sizeof e->host)
        return tt__fail(TT_ERR_PROTOCOL,
                        "etcd: the key tutti/%s/coordinator: expected \"ADDRESS PORT\", got \"%.100s\"", e->job->run_id,
                        value);
    snprintf(e->host, sizeof e->host, "%.*s", (int)(space - value), value);
    e->port = port;
    return TT_OK;
}

tt_status tt__election_look(tt__election *e, int *port, bool *own) {
    char there[NAME_SIZE];
    *port = 0;
    *own = false;
    if (!e->own) {
        TT__TRY(connect_etcd(e));
        TT__TRY(read_coordinator(e, there));
        bool mine = e->server && !strcmp(there, e->name); /* by an earlier try, whose answer was lost */
        if ((!*there || mine) && e->job->serves != 0)
            TT__TRY(elect(e, there));
        if (!*there)
            return TT_OK;
        TT__TRY(read_name(e, there));
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
        tt__thread_join(e->thread);
    e->started = e->own = false;
}

void tt__election_reset(tt__election *e) {
    stop_beats(e);
    step_back(e);
    tt_store_free(e->etcd);
    e->etcd = NULL;
}

void tt__election_free(tt__election *e) {
    if (!e)
        return;
    tt__election_reset(e);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    munmap(e->master_addr, NI_MAXHOST);
    e->job->master_addr = "";
    free(e);
}
