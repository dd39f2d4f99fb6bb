#include "comm/rendezvous/launcher_notes.h"

#include "base/error.h"
#include "base/process/fork.h"
#include "base/text/parse.h"
#include "comm/world.h"
#include "net/job/job_socket.h"
#include "store/signed.h"

#include <tutti/store.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t seat_lock = PTHREAD_MUTEX_INITIALIZER;
static tt__seat own_seat; /* world 0: none */

static tt_status read_round_number(int64_t *number) {
    const char *text = getenv("TT_ROUND");
    *number = 0;
    return text && *text ? tt__parse_i64("TT_ROUND", text, 0, INT32_MAX, number) : TT_OK;
}

tt_status tt__round_check(void) {
    int64_t number;
    return read_round_number(&number);
}

/* The launcher gave the seat to the parent, not to a process that tt_spawn() made of it. */
static void round_leave_seat(void) {
    pthread_mutex_init(&seat_lock, NULL);
    own_seat = (tt__seat){0};
}

static void round_watch_spawned(void) { tt__on_new_process(round_leave_seat); }

int tt__round_number(void) {
    tt__seat seat;
    int64_t number;
    if (tt__round_seat(&seat))
        return seat.round;
    tt__saved_error saved;
    tt__error_save(&saved);
    if (read_round_number(&number))
        number = 0; /* tt__round_check() has reported it */
    tt__error_restore(&saved);
    return (int)number;
}

void tt__round_move(const tt__seat *seat) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, round_watch_spawned);
    pthread_mutex_lock(&seat_lock);
    own_seat = *seat;
    pthread_mutex_unlock(&seat_lock);
}

bool tt__round_seat(tt__seat *seat) {
    pthread_mutex_lock(&seat_lock);
    *seat = own_seat;
    pthread_mutex_unlock(&seat_lock);
    return seat->world > 0;
}

/* Together well under the second in which errors must name a dead rank. A launcher writes as soon as it learns of the
 * end. */
enum { CONNECT_MS = 300, WAIT_MS = 300 };

const char *tt__agent_store_end_of(const tt__agent_store *agent_store, int r, char *text, size_t size) {
    tt_store *store = NULL;
    tt_store_value value;
    tt__secret secret;
    char key[64];
    text[0] = '\0';
    if (!agent_store->port || tt_tcp_store(&store, agent_store->host, agent_store->port, .timeout_ms = CONNECT_MS))
        return text;
    tt_store_set_timeout_ms(store, WAIT_MS);
    tt__ended_key(key, r, tt__round_number());
    if (!tt__secret_load(&secret) &&
        !tt__signed_get(store, &secret, key, tt__store_life(store), "this rank", "the launcher", 0, &value)) {
        snprintf(text, size, "%s", (const char *)value.data);
        tt_store_value_free(&value);
    }
    tt__secret_wipe(&secret);
    tt_store_free(store);
    return text;
}

enum { LOOK_MS = 1000 /* for the requests of one look */ };

bool tt__launcher_notes_ends(const tt__rendezvous *rendezvous) {
    const char *socket = getenv("TT_JOB_SOCKET"), *own = getenv("RANK"), *size = getenv("WORLD_SIZE");
    tt__seat seat;
    if (socket && tt__round_seat(&seat))
        return seat.rank == rendezvous->rank && seat.world == rendezvous->world;
    return socket && own && size && tt__has_agent_store() && atoi(own) == rendezvous->rank &&
           atoi(size) == rendezvous->world;
}

bool tt__launcher_notes_place(tt__agent_store *place) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    tt__seat seat;
    bool moved = tt__round_seat(&seat);
    *place = (tt__agent_store){.port = moved ? seat.port : port ? atoi(port) : 0};
    snprintf(place->host, sizeof place->host, "%s", moved ? seat.host : host ? host : "");
    return *place->host;
}

/* Connect to the launcher's store. If that fails, notes->store stays NULL. */
static void open_notes(tt__notes *notes) {
    tt__agent_store place;
    notes->is_tried = true;
    if (!tt__launcher_notes_place(&place) || tt_tcp_store(&notes->store, place.host, place.port, .timeout_ms = LOOK_MS))
        notes->store = NULL;
}

/* The store that the launcher writes to; NULL: it can't be reached. */
static tt_store *notes_of(const tt__rendezvous *rendezvous) {
    tt__notes *notes = rendezvous->notes;
    if (!notes)
        return rendezvous->store;
    if (!notes->is_tried)
        open_notes(notes);
    return notes->store;
}

tt_status tt__launcher_note(const tt__rendezvous *rendezvous, const tt__secret *secret, int r, char *text,
                            size_t size) {
    char name[64];
    const char *key = tt__ended_key(name, r, tt__round_number());
    tt_store *notes = notes_of(rendezvous);
    tt_store_value value;
    bool there = false;
    *text = '\0';
    tt_status status = notes ? tt_store_check(notes, &key, 1, &there) : TT_OK;
    if (!status && there)
        status = tt__signed_get(notes, secret, key, tt__store_life(notes), "this rank", "the launcher", 0, &value);
    if (status == TT_ERR_AUTH)
        return TT_OK; /* not the launcher's */
    if (status)
        return notes == rendezvous->store || status == TT_ERR_ABORTED ? status : TT_OK;
    if (!there)
        return TT_OK;
    snprintf(text, size, "%.*s", value.size < 80 ? (int)value.size : 80, (const char *)value.data);
    tt_store_value_free(&value);
    return TT_OK;
}
