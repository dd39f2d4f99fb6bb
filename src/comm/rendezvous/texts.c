/* Meeting through the store. Each rank sets one key, signed with the job secret if there is one, and reads all ranks':
 * three round trips. What was not signed is refused, and read again for a while. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/setting.h"
#include "comm/rendezvous/launcher_notes.h"
#include "comm/rendezvous/stopped.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_SIZE = 256 };

/* One exchange. */
typedef struct exchange {
    const tt__rendezvous *given;
    tt_store *store;
    tt__secret secret;
    const char *life; /* of the store: signatures count in this life alone */
    int rank, world;
    int64_t deadline_ms;
    size_t size;
    char *texts;
    const char *kind;
    tt__long_wait *waits_long;
    bool launched; /* a launcher knows how the ranks end: see tt__launcher_notes_ends() */
    bool told;     /* it was logged which ranks are missing */
    tt__stopped stopped;
    char (*names)[KEY_SIZE];
    const char **keys;
    tt_store_value *values;
} exchange;

static void texts_key_of(const char *prefix, const char *kind, int rank, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s/%s/%d", prefix, kind, rank);
}

/* The timeout has passed: fail with the ranks that have written no text. TT_OK: all have by now, or another rank gave
 * up at the same time, as its note says. */
static tt_status check_missing(const exchange *x, int64_t waited_ms) {
    char cause[512], ranks[256];
    tt__rankset missing = {0};
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    for (int r = 0; r < x->world; r++) {
        bool there = false;
        if (tt_store_check(x->store, &x->keys[r], 1, &there))
            return tt__fail(TT_ERR_TIMEOUT, "not all %d ranks joined within %lld ms: %s", x->world,
                            (long long)waited_ms, cause);
        if (!there)
            tt__rankset_add(&missing, r);
    }
    if (!tt__rankset_count(&missing))
        return TT_OK;
    tt__rankset_text(&missing, ranks, sizeof ranks);
    return tt__fail(TT_ERR_TIMEOUT,
                    "%s of %d did not join within %lld ms (start all ranks, with the same address and world size%s)",
                    ranks, x->world, (long long)waited_ms,
                    x->launched ? "" : "; whether one is stopped by a signal is known only to `tutti run`");
}

/* Has a rank ended, by its launcher's note? While any text is missing, a rank that has written its own counts, too: no
 * rank can have finished what all do together. Otherwise ranks that survive others would wait until their launchers end
 * them. */
static tt_status check_ended(const exchange *x) {
    for (int r = 0; r < x->world; r++) {
        char how[96];
        bool there = false, all = false;
        TT__TRY(tt__launcher_note(x->given, &x->secret, r, how, sizeof how));
        if (!*how)
            continue;
        TT__TRY(tt_store_check(x->store, x->keys, x->world, &all));
        if (all) /* all texts are there by now: it may have ended after that */
            return TT_OK;
        TT__TRY(tt_store_check(x->store, &x->keys[r], 1, &there));
        return tt__fail(TT_ERR_PEER, "rank %d ended with %s before %s joined", r, how, there ? "all had" : "it");
    }
    return TT_OK;
}

/* Is a rank that has written no text stopped? */
static tt_status check_stopped(exchange *x) {
    tt__stopped_look(&x->stopped);
    for (int r = 0; r < x->world; r++) {
        bool there = false;
        tt_status status = tt__stopped_check(&x->stopped, r);
        if (!status)
            continue;
        tt__saved_error stopped;
        tt__error_save(&stopped);
        TT__TRY(tt_store_check(x->store, &x->keys[r], 1, &there));
        if (there) /* it may have been stopped after that */
            continue;
        tt__error_restore(&stopped);
        return status;
    }
    return TT_OK;
}

/* Look whether one of the ranks has ended, ever more rarely, or is stopped. */
static tt_status check_launched(exchange *x, int64_t *ended_due_ms, int64_t *pause_ms) {
    enum { LONGEST_MS = 1600 };
    TT__TRY(check_stopped(x));
    if (tt__left_ms(*ended_due_ms))
        return TT_OK;
    *pause_ms = *pause_ms < LONGEST_MS ? 2 * *pause_ms : *pause_ms;
    *ended_due_ms = tt__deadline_ms(*pause_ms);
    return check_ended(x);
}

/* Log which ranks this one waits for: rank 0 does, and in small jobs all, as each asks the store about each. A rank
 * that was started twice, in place of a missing one, fails. */
static tt_status tell_missing(exchange *x) {
    enum { SMALL = 64 };
    char ranks[256];
    tt__rankset missing = {0};
    x->told = true;
    if (strcmp(x->kind, "rank") != 0 || (x->rank && x->world > SMALL))
        return TT_OK;
    for (int r = 0; r < x->world; r++) {
        bool there = false;
        TT__TRY(tt_store_check(x->store, &x->keys[r], 1, &there));
        if (!there)
            tt__rankset_add(&missing, r);
    }
    if (!x->launched && x->waits_long)
        TT__TRY(x->waits_long(x->given, &x->secret));
    if (tt__rankset_count(&missing))
        tt__log(TT_LOG_INFO, "waiting for %s of %d to join, for %.3g s%s",
                tt__rankset_text(&missing, ranks, sizeof ranks), x->world, (double)tt__wait_notice_ns() / 1e9,
                x->launched ? "" : " (start all ranks, with the same address and world size)");
    return TT_OK;
}

/* Wait for all keys, at most `ms`; meanwhile look how the other ranks are. */
static tt_status wait_for_keys(exchange *x, int64_t ms) {
    int64_t deadline_ms = tt__deadline_ms(ms), pause_ms = 200, ended_due_ms = tt__deadline_ms(pause_ms);
    int64_t tell_ms = tt__deadline_ms(tt__wait_notice_ns() / 1000000);
    tt__saved_error before;
    tt__error_save(&before);
    x->told = !tt__wait_notice_ns();
    for (;;) {
        int64_t left = tt__left_ms(deadline_ms), slice = x->launched ? tt__left_ms(ended_due_ms) : INT64_MAX;
        if (x->launched && slice > x->stopped.interval_ms)
            slice = x->stopped.interval_ms;
        if (!x->told && tt__left_ms(tell_ms) < slice)
            slice = tt__left_ms(tell_ms);
        bool looks = slice < left;
        tt_status status = tt_store_wait(x->store, x->keys, (size_t)x->world, looks ? slice + 1 : left ? left : 1);
        if (status == TT_ERR_TIMEOUT && looks) {
            status = x->launched ? check_launched(x, &ended_due_ms, &pause_ms) : TT_OK;
            if (!status && !x->told && !tt__left_ms(tell_ms))
                status = tell_missing(x);
            if (!status)
                continue;
        }
        if (!status)
            tt__error_restore(&before);
        return status;
    }
}

/* Read the keys one by one, as the older dialect of the store requires. */
static tt_status get_each(const exchange *x) {
    for (int r = 0; r < x->world; r++)
        TT__TRY(tt_store_get(x->store, x->keys[r], &x->values[r]));
    return TT_OK;
}

static tt_status get_values(exchange *x) {
    int64_t start = tt__now_ms(), left = tt__left_ms(x->deadline_ms);
    tt_status status = wait_for_keys(x, left);
    if (status == TT_ERR_TIMEOUT)
        status = check_missing(x, tt__now_ms() - start);
    TT__TRY(status);
    status = tt_store_multi_get(x->store, x->keys, x->world, x->values);
    if (status)
        memset(x->values, 0, (size_t)x->world * sizeof *x->values); /* the caller owns none of them */
    return status == TT_ERR_UNSUPPORTED ? get_each(x) : status;
}

/* Set this rank's own text: texts[rank * size]. */
static tt_status set_own(const exchange *x) {
    const char *text = x->texts + (size_t)x->rank * x->size;
    return tt__signed_set(x->store, &x->secret, x->keys[x->rank], x->life, text, strlen(text));
}

/* Set this rank's own text again if its key holds another one, even one that this rank wrote in an earlier job. */
static tt_status keep_own(const exchange *x) {
    char who[24];
    const char *text = x->texts + (size_t)x->rank * x->size;
    tt_store_value *value = &x->values[x->rank];
    if (!x->secret.set)
        return TT_OK;
    if (!tt__signed_open(value, &x->secret, x->keys[x->rank], x->life) && value->size == strlen(text) &&
        !memcmp(value->data, text, value->size))
        return TT_OK;
    snprintf(who, sizeof who, "rank %d", x->rank);
    tt__signed_refuse(who, who, x->keys[x->rank]);
    return set_own(x);
}

/* Read rank r's text, whose value was refused, again. */
static tt_status get_again(const exchange *x, int r) {
    char who[24], whose[24];
    int64_t left = tt__left_ms(x->deadline_ms);
    snprintf(who, sizeof who, "rank %d", x->rank);
    snprintf(whose, sizeof whose, "rank %d", r);
    tt_store_value_free(&x->values[r]);
    return tt__signed_get(x->store, &x->secret, x->keys[r], x->life, who, whose,
                          left < TT__SIGNED_PATIENCE_MS ? left : TT__SIGNED_PATIENCE_MS, &x->values[r]);
}

static tt_status open_values(const exchange *x) {
    TT__TRY(keep_own(x)); /* first, since others wait for it */
    for (int r = 0; r < x->world; r++) {
        if (r == x->rank)
            continue;
        if (tt__signed_open(&x->values[r], &x->secret, x->keys[r], x->life))
            TT__TRY(get_again(x, r));
        snprintf(x->texts + (size_t)r * x->size, x->size, "%.*s", (int)x->values[r].size,
                 (const char *)x->values[r].data);
    }
    return TT_OK;
}

static tt_status exchange_begin(exchange *x, const char *prefix, const char *kind, int64_t heartbeat_ms) {
    x->names = calloc((size_t)x->world, sizeof *x->names);
    x->keys = calloc((size_t)x->world, sizeof *x->keys);
    x->values = calloc((size_t)x->world, sizeof *x->values);
    if (!x->names || !x->keys || !x->values)
        return tt__fail(TT_ERR_MEMORY, "no memory for the cards of %d ranks", x->world);
    for (int r = 0; r < x->world; r++) {
        texts_key_of(prefix, kind, r, x->names[r]);
        x->keys[r] = x->names[r];
    }
    x->launched = tt__launcher_notes_ends(x->given);
    TT__TRY(tt__stopped_begin(&x->stopped, x->world, heartbeat_ms));
    return tt__secret_load(&x->secret);
}

static void exchange_end(exchange *x) {
    for (int r = 0; x->values && r < x->world; r++)
        tt_store_value_free(&x->values[r]);
    free(x->names);
    free(x->keys);
    free(x->values);
    tt__stopped_end(&x->stopped);
    tt__secret_wipe(&x->secret);
}

tt_status tt__texts_exchange_asking(const tt__rendezvous *given, const char *kind, size_t size, char *texts,
                                    tt__long_wait *waits_long) {
    exchange x = {.given = given,
                  .store = given->store,
                  .life = tt__store_life(given->store),
                  .rank = given->rank,
                  .world = given->world,
                  .deadline_ms = given->deadline_ms,
                  .size = size,
                  .texts = texts,
                  .kind = kind,
                  .waits_long = waits_long};
    tt_status status = exchange_begin(&x, given->prefix, kind, given->heartbeat_ms);
    if (!status)
        status = set_own(&x);
    if (!status)
        status = get_values(&x);
    if (!status)
        status = open_values(&x);
    exchange_end(&x);
    return status;
}

tt_status tt__texts_exchange(const tt__rendezvous *given, const char *kind, size_t size, char *texts) {
    return tt__texts_exchange_asking(given, kind, size, texts, NULL);
}

void tt__texts_give_up(tt_store *store, const char *prefix, const char *kind, int world) {
    tt__secret secret;
    tt_status status = tt__secret_load(&secret);
    for (int r = 0; r < world && !status; r++) {
        char key[KEY_SIZE];
        tt__bytes text = {0};
        texts_key_of(prefix, kind, r, key);
        tt__sign(&text, &secret, key, tt__store_life(store), TT__GIVEN_UP, strlen(TT__GIVEN_UP));
        status = text.failed ? TT_ERR_MEMORY : tt_store_compare_set(store, key, "", 0, text.data, text.size, NULL);
        tt__bytes_free(&text);
    }
    tt__secret_wipe(&secret);
}
