#include "elastic/seat.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/secret.h"
#include "store/etcd_lease.h"
#include "store/replica.h"
#include "store/replica_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call while the node's thread or a beat waits for it; the last ones, at the end. */
enum { CALL_MS = 2000, END_MS = 1000, RAW_SIZE = TT__SEAT_NAME_SIZE + 80 };

#define COORDINATOR "coordinator"

struct tt__seat {
    const tt__job *job;
    const tt__etcd_place *place;
    tt_store *store; /* NULL: not open */
    int64_t ttl_ms;
    tt__etcd_lease *lease; /* in etcd */

    /* with replicas */
    tt_store *replicas;      /* `store` is a prefix of it */
    tt_store_server *server; /* this host's, or NULL */
    bool served;             /* it was tried */
    uint64_t id;             /* of this process's names */
    uint64_t beats;
    char seen[RAW_SIZE]; /* what was read last, since when: "": nothing */
    int64_t seen_ms;
    char own[RAW_SIZE]; /* what was written last; "": nothing */
};

tt_status tt__seat_new(tt__seat **out, const tt__job *job) {
    tt__seat *seat = *out = calloc(1, sizeof *seat);
    if (!seat)
        return tt__fail(TT_ERR_MEMORY, "no memory to look for the job's coordinator");
    seat->job = job;
    seat->place = job->etcd;
    tt_status status = tt__random_bytes(&seat->id, sizeof seat->id);
    if (status) {
        free(seat);
        *out = NULL;
    }
    return status;
}

void tt__seat_close(tt__seat *seat) {
    tt_store_free(seat->store);
    tt_store_free(seat->replicas);
    seat->store = seat->replicas = NULL;
    *seat->seen = '\0';
}

void tt__seat_free(tt__seat *seat) {
    if (!seat)
        return;
    tt__seat_close(seat);
    tt_store_server_free(seat->server);
    free(seat);
}

/* Serve the replica of this host, if it is to have one. */
static tt_status serve_replica(tt__seat *seat, const tt__replica_place *place) {
    const tt_store_server_new_args args = {.auth = seat->job->store_auth, .max_memory = seat->job->store_memory};
    int member = 0;
    if (seat->served)
        return TT_OK;
    tt_status status = tt__replica_server_new(&seat->server, place, &args, TT_LOG_INFO, &member);
    seat->served = !status || status == TT_ERR_NET || status == TT_ERR_UNSUPPORTED;
    if (!status)
        tt__log(TT_LOG_DEBUG, "serving replica %d of %d of the store at %s:%d", member + 1, place->n,
                place->at[member].host, place->at[member].port);
    else if (status == TT_ERR_UNSUPPORTED) /* those of other hosts, or `tutti store`, may do */
        tt__log(TT_LOG_WARNING, "no replica of the store is served here: %s", tt_last_error());
    else if (status == TT_ERR_NET)
        tt__log(TT_LOG_DEBUG, "no replica of the store is served here: %s", tt_last_error());
    return seat->served ? TT_OK : status;
}

static tt_status open_replicas(tt__seat *seat, const char *prefix) {
    tt__replica_place place;
    TT__TRY(tt__replica_place_read(&place, "--rdzv-endpoint", seat->place->endpoints, TT__SEAT_REPLICA_PORT));
    TT__TRY(serve_replica(seat, &place));
    TT__TRY(tt__replica_store(&seat->replicas, &place, NULL, CALL_MS));
    return tt_prefix_store(&seat->store, prefix, seat->replicas);
}

tt_status tt__seat_open(tt__seat *seat) {
    const tt__etcd_place *place = seat->place;
    char prefix[600];
    if (seat->store)
        return TT_OK;
    if (snprintf(prefix, sizeof prefix, "tutti/%s", seat->job->run_id) >= (int)sizeof prefix)
        return tt__fail(TT_ERR_INVALID, "--rdzv-id: expected a shorter name, got one of %zu bytes",
                        strlen(seat->job->run_id));
    if (place->replicas)
        return open_replicas(seat, prefix);
    return tt_etcd_store(&seat->store, place->endpoints, .prefix = prefix, .timeout_ms = CALL_MS,
                         .ca_file = place->ca_file, .cert_file = place->cert_file, .key_file = place->key_file);
}

int64_t tt__seat_ttl_ms(const tt__seat *seat) { return seat->ttl_ms; }

static void take_text(tt_store_value *value, char *text, size_t size) {
    snprintf(text, size, "%.*s", (int)value->size, value->size ? (const char *)value->data : "");
    tt_store_value_free(value);
}

/* ---- with replicas: "NAME #ID.BEATS.TTL_MS" */

/* Who reads it asked for no key: leave out `store: compare_set "KEY": `. */
static tt_status without_the_call(tt_status status) {
    char text[TT__ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", tt_last_error());
    const char *key_end = strncmp(text, "store: compare_set \"", 20) ? NULL : strstr(text + 20, "\": ");
    return tt__fail(status, "%s", key_end ? key_end + 3 : text);
}

/* Replace what is there, if it is `expected`; `raw` := what is there then. */
static tt_status swap_raw(tt__seat *seat, const char *expected, const char *desired, char raw[RAW_SIZE]) {
    tt_store_value value = {0};
    tt_status status =
        tt_store_compare_set(seat->store, COORDINATOR, expected, strlen(expected), desired, strlen(desired), &value);
    if (status)
        return without_the_call(status);
    take_text(&value, raw, RAW_SIZE);
    return TT_OK;
}

/* Read what is there: a write that changes nothing, as a missing key must not be waited for. */
static tt_status read_raw(tt__seat *seat, char raw[RAW_SIZE]) {
    static const char never[] = "?";
    TT__TRY(swap_raw(seat, never, never, raw));
    if (!strcmp(raw, never))
        *raw = '\0';
    return TT_OK;
}

static bool sits_here(const tt__seat *seat, const char *raw) {
    char id[32];
    snprintf(id, sizeof id, " #%016" PRIx64 ".", seat->id);
    return strstr(raw, id) != NULL;
}

static void name_in(const char *raw, char name[TT__SEAT_NAME_SIZE]) {
    const char *mark = strstr(raw, " #");
    size_t size = mark ? (size_t)(mark - raw) : strlen(raw);
    snprintf(name, TT__SEAT_NAME_SIZE, "%.*s", (int)size, raw);
}

static void put_raw(tt__seat *seat, const char *name, char raw[RAW_SIZE]) {
    snprintf(raw, RAW_SIZE, "%s #%016" PRIx64 ".%" PRIu64 ".%" PRId64, name, seat->id, ++seat->beats, seat->ttl_ms);
}

/* How long its owner may be silent, as it says itself: others may have been told another heartbeat. */
static int64_t ttl_in(const char *raw) {
    const char *dot = strrchr(raw, '.');
    int64_t ttl_ms = dot ? strtoll(dot + 1, NULL, 10) : 0;
    return ttl_ms > 0 ? ttl_ms : INT64_MAX;
}

static tt_status find_in_replicas(tt__seat *seat, char there[TT__SEAT_NAME_SIZE]) {
    char raw[RAW_SIZE];
    int64_t began_ms = tt__now_ms();
    TT__TRY(read_raw(seat, raw));
    name_in(raw, there);
    if (strcmp(raw, seat->seen) != 0) {
        memcpy(seat->seen, raw, sizeof raw);
        seat->seen_ms = tt__now_ms();
    } else if (began_ms - seat->seen_ms >= ttl_in(raw) && !sits_here(seat, raw)) {
        *there = '\0';
    }
    return TT_OK;
}

static tt_status take_in_replicas(tt__seat *seat, const char *name, char there[TT__SEAT_NAME_SIZE]) {
    char own[RAW_SIZE], raw[RAW_SIZE];
    put_raw(seat, name, own);
    TT__TRY(swap_raw(seat, seat->seen, own, raw));
    name_in(raw, there);
    if (strcmp(raw, own) != 0)
        return TT_OK;
    memcpy(seat->own, own, sizeof own);
    memcpy(seat->seen, own, sizeof own);
    return TT_OK;
}

/* Count on. Where the answer to the last time was lost, it may have happened. */
static tt_status keep_in_replicas(tt__seat *seat) {
    char name[TT__SEAT_NAME_SIZE], next[RAW_SIZE], raw[RAW_SIZE];
    for (int tries = 0; *seat->own && tries < 2; tries++) {
        name_in(seat->own, name);
        put_raw(seat, name, next);
        TT__TRY(swap_raw(seat, seat->own, next, raw));
        bool kept = !strcmp(raw, next);
        memcpy(seat->own, raw, sizeof raw);
        if (kept)
            return TT_OK;
        if (!sits_here(seat, raw))
            *seat->own = '\0'; /* another's: who looks sees it */
    }
    return TT_OK;
}

/* ---- in etcd */

static tt_status find_in_etcd(tt__seat *seat, char there[TT__SEAT_NAME_SIZE]) {
    const char *keys[] = {COORDINATOR};
    bool found = false;
    tt_store_value value = {0};
    *there = '\0';
    TT__TRY(tt_store_check(seat->store, keys, 1, &found));
    if (!found)
        return TT_OK;
    TT__TRY(tt_store_get(seat->store, COORDINATOR, &value));
    take_text(&value, there, TT__SEAT_NAME_SIZE);
    return TT_OK;
}

static tt_status take_in_etcd(tt__seat *seat, const char *name, char there[TT__SEAT_NAME_SIZE]) {
    tt_store_value value = {0};
    *there = '\0';
    TT__TRY(tt__etcd_compare_set_leased(seat->lease, COORDINATOR, "", 0, name, strlen(name), CALL_MS, &value));
    take_text(&value, there, TT__SEAT_NAME_SIZE);
    return TT_OK;
}

/* Keep the lease, or make one. */
static tt_status keep_in_etcd(tt__seat *seat, int64_t ttl_ms) {
    tt_status status = seat->lease ? tt__etcd_lease_beat(seat->lease, CALL_MS) : TT_OK;
    if (status == TT_ERR_STATE) {
        tt__log(TT_LOG_DEBUG, "%s", tt_last_error());
        tt__etcd_lease_free(seat->lease, false, 0);
        seat->lease = NULL;
        status = TT_OK;
    }
    if (!status && !seat->lease)
        status = tt__etcd_lease_new(&seat->lease, seat->store, ttl_ms, CALL_MS);
    if (!status)
        seat->ttl_ms = tt__etcd_lease_ttl_ms(seat->lease);
    return status;
}

/* ---- */

tt_status tt__seat_find(tt__seat *seat, char there[TT__SEAT_NAME_SIZE]) {
    return seat->place->replicas ? find_in_replicas(seat, there) : find_in_etcd(seat, there);
}

tt_status tt__seat_take(tt__seat *seat, const char *name, char there[TT__SEAT_NAME_SIZE]) {
    return seat->place->replicas ? take_in_replicas(seat, name, there) : take_in_etcd(seat, name, there);
}

tt_status tt__seat_keep(tt__seat *seat, int64_t ttl_ms) {
    if (!seat->place->replicas)
        return keep_in_etcd(seat, ttl_ms);
    seat->ttl_ms = ttl_ms;
    return keep_in_replicas(seat);
}

void tt__seat_leave(tt__seat *seat) {
    char raw[RAW_SIZE];
    tt__etcd_lease_free(seat->lease, true, END_MS);
    seat->lease = NULL;
    if (!*seat->own || !seat->store)
        return;
    tt_store_set_timeout_ms(seat->replicas, END_MS);
    if (swap_raw(seat, seat->own, "", raw))
        tt__log(TT_LOG_DEBUG, "leaving the seat of the coordinator: %s", tt_last_error());
    tt_store_set_timeout_ms(seat->replicas, CALL_MS);
    *seat->own = '\0';
}

void tt__seat_over(tt__seat *seat) {
    if (seat->server)
        *seat->own = '\0';
}
