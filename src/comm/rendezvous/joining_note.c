/* The reason why joining failed, for the other ranks. A rank that gives up because of another closes its connections,
 * and its peers would blame it. So the first rank that knows writes a note into the store, which the others read before
 * they name a rank. */
#include "base/error.h"
#include "base/text/plain_text.h"
#include "comm/rendezvous/joining_watch.h"
#include "net/net.h"
#include "store/signed.h"

#include <stdio.h>
#include <string.h>

enum { NOTE_MS = 2000, INTERRUPTED_MS = 300 /* for who has to go on */, NOTE_SIZE = 512 };

static const char *note_key_of(const char *prefix, int rank, char key[256]) {
    snprintf(key, 256, "%s/failed/%d", prefix, rank);
    return key;
}

/* Find the first note of another rank. */
static bool find_note(tt_store *store, const tt__secret *secret, const char *prefix, int rank, int world,
                      char text[NOTE_SIZE], int *by) {
    char name[256], who[24], whose[24];
    const char *any = tt__joining_failed_key(prefix, name);
    bool failed = false;
    if (tt_store_check(store, &any, 1, &failed) || !failed)
        return false; /* or the store is gone, too */
    snprintf(who, sizeof who, "rank %d", rank);
    for (int r = 0; r < world; r++) {
        const char *key = note_key_of(prefix, r, name);
        bool there = false;
        tt_store_value value;
        if (r == rank)
            continue;
        if (tt_store_check(store, &key, 1, &there))
            return false;
        snprintf(whose, sizeof whose, "rank %d", r);
        if (!there || tt__signed_get(store, secret, key, tt__store_life(store, false), who, whose, 0, &value))
            continue;
        snprintf(text, NOTE_SIZE, "%s", (const char *)value.data);
        tt__make_plain_name(text);
        tt_store_value_free(&value);
        *by = r;
        return true;
    }
    return false;
}

/* Write this rank's note, and end the others' waiting for what it will not write any more. */
static void announce_failure(const tt__rendezvous *at, const tt__secret *secret, tt_status status, const char *text) {
    char key[256];
    if (tt__signed_set(at->store, secret, note_key_of(at->prefix, at->rank, key), tt__store_life(at->store, false),
                       text, strlen(text)) ||
        tt_store_set(at->store, tt__joining_failed_key(at->prefix, key), "", 0))
        return;
    if (status != TT_ERR_TIMEOUT) /* then all others' time ends as well, and each names who is missing */
        tt__texts_give_up(at->store, at->prefix, "rank", at->world);
    tt__texts_give_up(at->store, at->prefix, "net", at->world);
}

tt_status tt__joining_failed(const tt__rendezvous *at) {
    tt_status status = tt_last_status();
    char own[NOTE_SIZE], others[NOTE_SIZE];
    int64_t before = tt_store_timeout_ms(at->store);
    tt__secret secret;
    int by;
    tt__net_interrupt_hold(true);
    tt_store_set_timeout_ms(at->store, status == TT_ERR_ABORTED ? INTERRUPTED_MS : NOTE_MS);
    bool can_sign = !tt__secret_load(&secret), is_lost = status == TT_ERR_PEER || status == TT_ERR_NET;
    snprintf(own, sizeof own, "%s", tt_last_error());
    bool found = is_lost && can_sign && find_note(at->store, &secret, at->prefix, at->rank, at->world, others, &by);
    bool told = strstr(own, " ended with ") != NULL; /* by its launcher, whose words these are */
    if (is_lost && !found && !told && tt__joining_find_ended(at)) {
        status = tt_last_status();
        snprintf(own, sizeof own, "%s", tt_last_error());
    }
    if (!found && can_sign)
        announce_failure(at, &secret, status, own);
    tt__secret_wipe(&secret);
    tt_store_set_timeout_ms(at->store, before);
    tt__net_interrupt_hold(false);
    return found ? tt__fail(TT_ERR_PEER, "rank %d failed to join: %s", by, others) : tt__fail(status, "%s", own);
}
