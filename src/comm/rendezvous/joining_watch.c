#include "comm/rendezvous/joining_watch.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "comm/rendezvous/launcher_notes.h"

#include <stdio.h>

enum {
    FIRST_MS = 200,
    LONGEST_MS = 1600,
    MOMENT_MS = 250, /* within which a launcher learns of an end and notes it */
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

const char *tt__joining_failed_key(const char *prefix, char key[256]) {
    snprintf(key, 256, "%s/failed", prefix);
    return key;
}

/* Has a rank announced that joining failed? Its reason is found by tt__joining_failed(). */
static tt_status find_failed(const tt__rendezvous *rendezvous) {
    char name[256];
    const char *key = tt__joining_failed_key(rendezvous->prefix, name);
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

/* Look, and let no failure of the store count, but that the launcher wants this rank elsewhere. */
static tt_status look_at_store(const tt__rendezvous *rendezvous, const tt__rankset *absent) {
    int64_t before_ms = tt_store_timeout_ms(rendezvous->store);
    tt__saved_error before;
    tt__error_save(&before);
    /* No less: an answer that is not waited for costs the connection. */
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

tt_status tt__joining_find_ended(const tt__rendezvous *rendezvous) {
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
