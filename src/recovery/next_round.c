#include "recovery/next_round.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/plain_text.h"
#include "base/saved_error.h"
#include "net/recovery_words.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A wait is made of slices, so that a signal is seen. Who only looks has no time. */
enum { SLICE_MS = 200, CONNECT_MS = 1000, LOOK_CONNECT_MS = 100, LOOK_MS = 250 };

/* Connect, unless it is connected. */
static tt_status connect_launcher(tt__launcher_store *launcher, int64_t timeout_ms) {
    if (launcher->connection)
        return TT_OK;
    return tt_tcp_store(&launcher->connection, launcher->host, launcher->port, .timeout_ms = timeout_ms);
}

void tt__launcher_disconnect(tt__launcher_store *launcher) {
    tt_store_free(launcher->connection);
    launcher->connection = NULL;
}

/* Connect within the time, unless a signal comes: a launcher that has ended may be replaced, or may not. */
static tt_status connect_patiently(tt__launcher_store *launcher, int64_t wait_ms, const tt__stop_wish *stop) {
    int64_t deadline_ms = tt__deadline_ms(wait_ms);
    for (;;) {
        int64_t left = tt__left_ms(deadline_ms);
        tt_status status = connect_launcher(launcher, left < 1 ? 1 : left < CONNECT_MS ? left : CONNECT_MS);
        if (!status)
            tt_store_set_timeout_ms(launcher->connection, wait_ms);
        if ((status != TT_ERR_TIMEOUT && status != TT_ERR_NET) || !left)
            return status;
        if (tt__stop_wish_signal(stop))
            return tt__fail(TT_ERR_ABORTED, "signal %d came", tt__stop_wish_signal(stop));
    }
}

/* ---- what a key says ---- */

/* Take the next line, without its end. */
static const char *next_line(const char **text, char *line, size_t size) {
    size_t n = strcspn(*text, "\n");
    snprintf(line, size, "%.*s", (int)n, *text);
    *text += n + ((*text)[n] == '\n');
    return line;
}

/* The number at `rank` of a list; -2: it has none there. */
static long new_rank_at(const char *list, int rank) {
    for (int i = 0;; i++) {
        char *end;
        long number = strtol(list, &end, 10);
        if (end == list)
            return -2;
        if (i == rank)
            return number;
        list = end;
    }
}

static tt_status fail_round(int round, const char *what, const char *got) {
    return tt__fail(TT_ERR_PROTOCOL, "round %d as the launcher announces it: expected %s, got \"%.80s\"", round, what,
                    got);
}

tt_status tt__round_parse(tt__round_news *news, const char *text, int round, int rank, int world) {
    char line[160];
    char host[256];
    int number, size, port;
    *news = (tt__round_news){.seat.round = round};
    if (sscanf(next_line(&text, line, sizeof line), "%d %d", &number, &size) != 2 || number != round || size < 1)
        return fail_round(round, "its number and its number of ranks", line);
    size_t n = strcspn(text, "\n");
    char *list = strndup(text, n);
    if (!list)
        return tt__fail(TT_ERR_MEMORY, "no memory for the ranks of round %d", round);
    long seat = new_rank_at(list, rank);
    tt_status status = seat < -1 || seat >= size || new_rank_at(list, world) != -2
                           ? fail_round(round, "the new rank of each rank of the round before", list)
                           : TT_OK;
    free(list);
    TT__TRY(status);
    text += n + (text[n] == '\n');
    char place[320];
    if (sscanf(next_line(&text, place, sizeof place), "%255s %d", host, &port) != 2 || port < 1 || port > 65535)
        return fail_round(round, "the address and port of its store", place);
    news->seat.rank = (int)seat;
    news->seat.world = size;
    news->seat.port = port;
    snprintf(news->seat.host, sizeof news->seat.host, "%s", host);
    snprintf(news->reason, sizeof news->reason, "%s", text);
    news->reason[strcspn(news->reason, "\n")] = '\0';
    tt__make_plain_name(news->reason);
    return TT_OK;
}

/* ---- waiting ---- */

static tt_status read_key(tt_store *store, const char *key, tt_store_value *value) {
    tt__secret secret;
    TT__TRY(tt__secret_load(&secret));
    tt_status status =
        tt__signed_get(store, &secret, key, "", "this rank", "the launcher", TT__SIGNED_PATIENCE_MS, value);
    tt__secret_wipe(&secret);
    return status;
}

/* Wait for the key. */
static tt_status await_key(tt_store *store, const char *key, int64_t deadline_ms, const tt__stop_wish *stop) {
    for (;;) {
        int64_t left = tt__left_ms(deadline_ms);
        tt_status status = tt_store_wait(store, &key, 1, left < 1 ? 1 : left < SLICE_MS ? left : SLICE_MS);
        if (status != TT_ERR_TIMEOUT || !left)
            return status;
        if (tt__stop_wish_signal(stop))
            return tt__fail(TT_ERR_ABORTED, "signal %d came", tt__stop_wish_signal(stop));
    }
}

static tt_status await_round(tt__launcher_store *launcher, tt_store_value *value, int round, int64_t wait_ms,
                             const tt__stop_wish *stop) {
    int64_t deadline_ms = tt__deadline_ms(wait_ms);
    char key[64];
    snprintf(key, sizeof key, TT__ROUND_KEY, round);
    TT__TRY(connect_patiently(launcher, wait_ms, stop));
    tt_status status = await_key(launcher->connection, key, deadline_ms, stop);
    return status ? status : read_key(launcher->connection, key, value);
}

tt_status tt__round_await(tt__launcher_store *launcher, tt__round_news *news, int round, int rank, int world,
                          int64_t wait_ms, const tt__stop_wish *stop) {
    tt_store_value value = {0};
    tt__saved_error cause;
    tt__error_save(&cause);
    tt_status status = await_round(launcher, &value, round, wait_ms, stop);
    if (!status)
        status = tt__round_parse(news, value.data, round, rank, world);
    tt_store_value_free(&value);
    if (status == TT_ERR_TIMEOUT)
        return tt__fail(status,
                        "the launcher announced no round %d within %lld ms, in which the lost rank would be replaced: "
                        "start the job by a `tutti run` that does so (docs/elastic.md), or again from its last "
                        "checkpoint; before this: %s",
                        round, (long long)wait_ms, cause.text);
    if (status == TT_ERR_ABORTED || status == TT_ERR_NET)
        tt__fail_prefix("while this rank waited for round %d of the job, after %s", round,
                        *cause.text ? cause.text : "a call for it");
    if (!status)
        tt__error_restore(&cause);
    return status;
}

/* ---- is one wanted? ---- */

static bool look_at_wanted(tt_store *store, int round) {
    const char *key = TT__WANTED_KEY;
    bool there = false;
    tt_store_value value;
    if (tt_store_check(store, &key, 1, &there) || !there || read_key(store, key, &value))
        return false;
    bool wanted = strtol(value.data, NULL, 10) > round;
    tt_store_value_free(&value);
    return wanted;
}

bool tt__round_wanted(tt__launcher_store *launcher, int round) {
    tt__saved_error saved;
    bool wanted = false;
    if (!launcher->port)
        return false;
    tt__error_save(&saved);
    if (!connect_launcher(launcher, LOOK_CONNECT_MS)) {
        uint64_t errors = tt__error_count();
        tt_store_set_timeout_ms(launcher->connection, LOOK_MS);
        wanted = look_at_wanted(launcher->connection, round);
        if (tt__error_count() != errors)
            tt__launcher_disconnect(launcher); /* a connection that failed stays so */
    }
    tt__error_restore(&saved);
    return wanted;
}
