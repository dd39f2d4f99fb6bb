#include "comm/rendezvous/launcher_notes.h"

#include "comm/rendezvous/round.h"
#include "net/job/job_socket.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 1000 /* for what a look asks of the store */ };

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

/* Connect to the launcher's store. Where that fails, nothing is known. */
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
        status =
            tt__signed_get(notes, secret, key, tt__store_life(notes, false), "this rank", "the launcher", 0, &value);
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
