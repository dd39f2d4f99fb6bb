/* The reason why joining failed, for the other ranks. A rank that gives up because of another closes its connections,
 * and its peers would blame it. So the first rank that knows writes a note into the store, which the others read before
 * they name a rank. */
#include "base/error.h"
#include "base/plain_text.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/interrupt.h"
#include "store/signed.h"

#include <stdio.h>

enum { NOTE_MS = 2000, INTERRUPTED_MS = 300 /* for who has to go on */, NOTE_SIZE = 512 };

static const char *note_key_of(const char *prefix, int rank, char key[256]) {
    snprintf(key, 256, "%s/failed/%d", prefix, rank);
    return key;
}

/* Find the first note of another rank. */
static bool find_note(tt_store *store, const tt__secret *secret, const char *prefix, int rank, int world,
                      char text[NOTE_SIZE], int *by) {
    char name[256], who[24], whose[24];
    snprintf(who, sizeof who, "rank %d", rank);
    for (int r = 0; r < world; r++) {
        const char *key = note_key_of(prefix, r, name);
        bool there = false;
        tt_store_value value;
        if (r == rank)
            continue;
        if (tt_store_check(store, &key, 1, &there))
            return false; /* the store is gone, too */
        snprintf(whose, sizeof whose, "rank %d", r);
        if (!there || tt__signed_get(store, secret, key, "", who, whose, 0, &value))
            continue;
        snprintf(text, NOTE_SIZE, "%s", (const char *)value.data);
        tt__make_plain_name(text);
        tt_store_value_free(&value);
        *by = r;
        return true;
    }
    return false;
}

tt_status tt__joining_failed(tt_store *store, const char *prefix, int rank, int world) {
    tt_status status = tt_last_status();
    char own[NOTE_SIZE], others[NOTE_SIZE], key[256];
    int64_t before = tt_store_timeout_ms(store);
    tt__secret secret;
    int by;
    size_t size = (size_t)snprintf(own, sizeof own, "%s", tt_last_error());
    tt__net_interrupt_hold(true);
    tt_store_set_timeout_ms(store, status == TT_ERR_ABORTED ? INTERRUPTED_MS : NOTE_MS);
    bool can_sign = !tt__secret_load(&secret);
    bool found = (status == TT_ERR_PEER || status == TT_ERR_NET) && can_sign &&
                 find_note(store, &secret, prefix, rank, world, others, &by);
    if (!found && can_sign &&
        !tt__signed_set(store, &secret, note_key_of(prefix, rank, key), "", own,
                        size < sizeof own ? size : sizeof own - 1)) {
        if (status != TT_ERR_TIMEOUT) /* then all others' time ends as well, and each names who is missing */
            tt__texts_give_up(store, prefix, "rank", world);
        tt__texts_give_up(store, prefix, "net", world);
    }
    tt__secret_wipe(&secret);
    tt_store_set_timeout_ms(store, before);
    tt__net_interrupt_hold(false);
    return found ? tt__fail(TT_ERR_PEER, "rank %d failed to join: %s", by, others) : tt__fail(status, "%s", own);
}
