/* Learning, while ranks join, that one of them won't. A rank that gives up because of another closes its connections,
 * and its peers would blame it. So the first rank that knows writes a note with its reason into the store, which the
 * others read before they name a rank. */
#include "comm/rendezvous/rendezvous.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/plain_text.h"
#include "comm/rendezvous/launcher_notes.h"
#include "net/net.h"
#include "store/signed.h"

#include <stdio.h>
#include <string.h>

enum {
    FIRST_MS = 200,
    LONGEST_MS = 1600,
    MOMENT_MS = 250, /* a launcher learns of an end, and notes it, within this time */
    AGAIN_MS = 20
};

void tt__joining_watch_begin(tt__joining_watch *watch, const tt__rendezvous *rendezvous) {
    *watch = (tt__joining_watch){.rendezvous = rendezvous, .due_ms = tt__deadline_ms(FIRST_MS), .pause_ms = FIRST_MS};
}

bool tt__joining_watch_due(const tt__joining_watch *watch) { return !tt__left_ms(watch->due_ms); }

static tt_status find_ended(const tt__rendezvous *rendezvous, const tt__secret *secret, const tt__rankset *among) {
    char how[96];
    for (int r = tt__rankset_next(among, 0); r >= 0; r = tt__rankset_next(among, r + 1))
        if (r != rendezvous->rank) {
            TT__TRY(tt__launcher_note(rendezvous, secret, r, how, sizeof how));
            if (*how)
                return tt__fail(TT_ERR_PEER, "rank %d ended with %s before all had joined", r, how);
        }
    return TT_OK;
}

/* The key that says that a rank has announced a failure. */
static const char *joining_failed_key(const char *prefix, char key[256]) {
    snprintf(key, 256, "%s/failed", prefix);
    return key;
}

/* Has a rank announced that joining failed? Its reason is found by tt__joining_failed(). */
static tt_status find_failed(const tt__rendezvous *rendezvous) {
    char name[256];
    const char *key = joining_failed_key(rendezvous->prefix, name);
    bool failed = false;
    TT__TRY(tt_store_check(rendezvous->store, &key, 1, &failed));
    return failed ? tt__fail(TT_ERR_PEER, "another rank failed to join") : TT_OK;
}

static tt_status look(const tt__rendezvous *rendezvous, const tt__rankset *absent) {
    tt_status status = find_failed(rendezvous);
    tt__secret secret;
    if (status || !tt__launcher_notes_ends(rendezvous) || tt__secret_load(&secret))
        return status;
    status = find_ended(rendezvous, &secret, absent);
    tt__secret_wipe(&secret);
    return status;
}

/* Look; ignore failures of the store, except that the launcher interrupted the wait. */
static tt_status look_at_store(const tt__rendezvous *rendezvous, const tt__rankset *absent) {
    int64_t before_ms = tt_store_timeout_ms(rendezvous->store);
    tt__saved_error before;
    tt__error_save(&before);
    /* no shorter: abandoning an answer costs the connection */
    tt_store_set_timeout_ms(rendezvous->store, tt__left_ms(rendezvous->deadline_ms) + 1);
    tt_status status = look(rendezvous, absent);
    tt_store_set_timeout_ms(rendezvous->store, before_ms);
    if (status == TT_ERR_PEER || status == TT_ERR_ABORTED)
        return status;
    tt__error_restore(&before);
    return TT_OK;
}

tt_status tt__joining_watch_look(tt__joining_watch *watch, const tt__rankset *absent) {
    watch->pause_ms = watch->pause_ms < LONGEST_MS ? 2 * watch->pause_ms : watch->pause_ms;
    watch->due_ms = tt__deadline_ms(watch->pause_ms);
    return look_at_store(watch->rendezvous, absent);
}

/* Another rank was lost while joining. If its launcher says within a moment which one ended, and how, fail with that;
 * else TT_OK. */
static tt_status joining_find_ended(const tt__rendezvous *rendezvous) {
    int64_t deadline_ms = tt__deadline_ms(MOMENT_MS);
    tt__rankset all = {0};
    tt__secret secret;
    if (!tt__launcher_notes_ends(rendezvous) || tt__secret_load(&secret))
        return TT_OK;
    for (int r = 0; r < rendezvous->world; r++)
        tt__rankset_add(&all, r);
    tt_status status;
    while (!(status = find_ended(rendezvous, &secret, &all)) && tt__left_ms(deadline_ms))
        tt__sleep_ms(AGAIN_MS);
    tt__secret_wipe(&secret);
    return status == TT_ERR_PEER ? status : TT_OK;
}

enum { NOTE_MS = 2000, INTERRUPTED_MS = 300 /* for a rank that has to go on */, NOTE_SIZE = 512 };

static const char *note_key_of(const char *prefix, int rank, char key[256]) {
    snprintf(key, 256, "%s/failed/%d", prefix, rank);
    return key;
}

/* Find the first note of another rank. */
static bool find_note(tt_store *store, const tt__secret *secret, const char *prefix, int rank, int world,
                      char text[NOTE_SIZE], int *by) {
    char name[256], who[24], whose[24];
    const char *any = joining_failed_key(prefix, name);
    bool failed = false;
    if (tt_store_check(store, &any, 1, &failed) || !failed)
        return false; /* no note, or the store is gone, too */
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
        if (!there || tt__signed_get(store, secret, key, tt__store_life(store), who, whose, 0, &value))
            continue;
        snprintf(text, NOTE_SIZE, "%s", (const char *)value.data);
        tt__make_plain_name(text);
        tt_store_value_free(&value);
        *by = r;
        return true;
    }
    return false;
}

/* Write this rank's note, and end the others' waiting for its texts, which will not come. */
static void announce_failure(const tt__rendezvous *at, const tt__secret *secret, tt_status status, const char *text) {
    char key[256];
    if (tt__signed_set(at->store, secret, note_key_of(at->prefix, at->rank, key), tt__store_life(at->store), text,
                       strlen(text)) ||
        tt_store_set(at->store, joining_failed_key(at->prefix, key), "", 0))
        return;
    if (status != TT_ERR_TIMEOUT) /* after a timeout all others time out as well, and each names the missing ranks */
        tt__texts_give_up(at->store, at->prefix, "rank", at->world);
    tt__texts_give_up(at->store, at->prefix, "net", at->world);
}

tt_status tt__joining_failed(const tt__rendezvous *at) {
    tt_status status = tt_last_status();
    char own[NOTE_SIZE], others[NOTE_SIZE];
    int64_t before = tt_store_timeout_ms(at->store);
    tt__secret secret;
    int by;
    tt__net_interrupt_suspend();
    tt_store_set_timeout_ms(at->store, status == TT_ERR_ABORTED ? INTERRUPTED_MS : NOTE_MS);
    bool can_sign = !tt__secret_load(&secret), is_lost = status == TT_ERR_PEER || status == TT_ERR_NET;
    snprintf(own, sizeof own, "%s", tt_last_error());
    bool found = is_lost && can_sign && find_note(at->store, &secret, at->prefix, at->rank, at->world, others, &by);
    bool told = strstr(own, " ended with ") != NULL; /* the launcher told how the rank ended */
    if (is_lost && !found && !told && joining_find_ended(at)) {
        status = tt_last_status();
        snprintf(own, sizeof own, "%s", tt_last_error());
    }
    if (!found && can_sign)
        announce_failure(at, &secret, status, own);
    tt__secret_wipe(&secret);
    tt_store_set_timeout_ms(at->store, before);
    tt__net_interrupt_resume();
    return found ? tt__fail(TT_ERR_PEER, "rank %d failed to join: %s", by, others) : tt__fail(status, "%s", own);
}
