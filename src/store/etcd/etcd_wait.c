/* Waiting for keys: look, then watch from the revision of that look, so that no change is missed in between. A watch
 * may end without a result, because its server is gone, or be silent for long, because its server is cut off from the
 * others. Then another look follows. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "store/etcd/etcd_store.h"
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"
#include "store/server/key_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WATCH_MS = 8000, PAUSE_FIRST_MS = 10, PAUSE_LAST_MS = 500, KEYS_TEXT_SIZE = 512 };

/* ---- a watch */

/* A watch on keys, as tt__etcd_put_key() and tt__etcd_put_end() put them, from a revision on. */
typedef struct key_watch {
    const tt__bytes *keys;
    int64_t revision;
    /* Called for each change; returns false to end the watch. */
    bool (*event)(void *user, const tt__etcd_kv *kv, bool deleted);
    void *user;
} key_watch;

typedef struct watching {
    key_watch *watch;
    bool heard;   /* a line came: the first one says that the watch has begun */
    bool refused; /* etcd has ended the watch */
} watching;

static bool take_events(const key_watch *w, tt__span events) {
    tt__span event, kv_text, member, type;
    while (tt__json_item(&events, &event)) {
        tt__etcd_kv kv = {0};
        bool deleted = tt__json_member(event, "type", &member) && tt__json_string(member, &type) && type.size == 6 &&
                       !memcmp(type.data, "DELETE", 6);
        if (!tt__json_member(event, "kv", &kv_text) || !tt__json_member(kv_text, "key", &member) ||
            !tt__json_string(member, &kv.key))
            continue;
        kv.there = !deleted;
        if (tt__json_member(kv_text, "value", &member))
            (void)tt__json_string(member, &kv.value);
        if (tt__json_member(kv_text, "mod_revision", &member))
            (void)tt__json_i64(member, &kv.revision);
        if (!w->event(w->user, &kv, deleted))
            return false;
    }
    return true;
}

/* Take one message. It has all changes of some revisions or, if it says "fragment", a part of them. */
static bool take_watch_line(void *user, tt__span line) {
    watching *w = user;
    key_watch *watch = w->watch;
    tt__span result, member, events;
    w->heard = true;
    if (!tt__json_member(line, "result", &result) ||
        (tt__json_member(result, "canceled", &member) && tt__json_is_true(member))) {
        w->refused = true;
        return false;
    }
    if (!tt__json_member(result, "events", &events))
        return true;
    return take_events(watch, events);
}

static tt__etcd_watch_end watch_once(tt__etcd_turn *turn, watching *w) {
    tt__bytes body = {0};
    int64_t left = tt__left_ms(turn->deadline_ms);
    tt__etcd_put_text(&body, "{\"create_request\":{");
    tt__bytes_put(&body, w->watch->keys->data, w->watch->keys->size);
    tt__etcd_put_text(&body, ",\"fragment\":true,\"start_revision\":\"");
    tt__etcd_put_i64(&body, w->watch->revision);
    tt__etcd_put_text(&body, "\"}}");
    if (w->watch->keys->failed || body.failed)
        tt__etcd_no_memory(turn);
    tt__etcd_watch_end end = TT__ETCD_WATCH_STOPPED;
    if (!turn->status)
        end = tt__etcd_watch_lines(&turn->store->client, (tt__span){body.data, body.size},
                                   left < WATCH_MS ? left : WATCH_MS, take_watch_line, w);
    tt__bytes_free(&body);
    return end;
}

/* Watch until the callback ends the watch, WATCH_MS have passed, or the deadline has; then the caller looks again.
 * *pause_ms, 0 at first, grows with each watch in a row that is lost or refused. */
static void watch_keys(tt__etcd_turn *turn, key_watch *watch, int64_t *pause_ms) {
    watching w = {.watch = watch};
    tt__etcd_watch_end end = watch_once(turn, &w);
    if (end == TT__ETCD_WATCH_LATE && !w.heard)
        tt__etcd_turn_away(&turn->store->client);
    if (end != TT__ETCD_WATCH_LOST && !w.refused) {
        *pause_ms = 0;
        return;
    }
    *pause_ms = !*pause_ms ? PAUSE_FIRST_MS : 2 * *pause_ms < PAUSE_LAST_MS ? 2 * *pause_ms : PAUSE_LAST_MS;
    int64_t left = tt__left_ms(turn->deadline_ms);
    left = *pause_ms < left ? *pause_ms : left;
    tt__sleep_ms(left);
}

/* ---- waiting for keys */

typedef struct waiting {
    tt__etcd_store *store;
    const char *const *keys;
    tt_store_value *values; /* or NULL */
    size_t n, missing;
    bool *there;
    size_t *order; /* the keys' indices, sorted by name */
    tt__bytes name;
} waiting;

static int compare_awaited(const void *a, const void *b, void *user) {
    const char *const *keys = user;
    return strcmp(keys[*(const size_t *)a], keys[*(const size_t *)b]);
}

static void mark_there(waiting *w, size_t i, bool there) {
    w->missing -= there && !w->there[i];
    w->missing += !there && w->there[i];
    w->there[i] = there;
}

static void waiting_found(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv) {
    waiting *w = user;
    mark_there(w, i, kv->there);
    if (kv->there && w->values)
        tt__etcd_value_of(turn, kv, &w->values[i]);
}

/* Return the first place in the order whose key is `name` or comes after it. */
static size_t find_awaited(const waiting *w, const char *name) {
    size_t low = 0, high = w->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(w->keys[w->order[middle]], name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool waiting_event(void *user, const tt__etcd_kv *kv, bool deleted) {
    waiting *w = user;
    if (!tt__etcd_key_of(w->store, kv, &w->name))
        return !w->name.failed;
    const char *name = (const char *)w->name.data;
    for (size_t i = find_awaited(w, name); i < w->n && !strcmp(w->keys[w->order[i]], name); i++)
        mark_there(w, w->order[i], !deleted);
    return w->missing > 0;
}

static void watch_missing(tt__etcd_turn *turn, waiting *w, int64_t revision, int64_t *pause_ms) {
    tt__bytes keys = {0};
    const char *first = NULL, *last = NULL;
    for (size_t i = 0; i < w->n; i++)
        if (!w->there[w->order[i]]) {
            last = w->keys[w->order[i]];
            first = first ? first : last;
        }
    if (first == last)
        tt__etcd_put_key(&keys, w->store, first);
    else
        tt__etcd_put_keys(&keys, w->store, first, last);
    key_watch watch = {.keys = &keys, .revision = revision, .event = waiting_event, .user = w};
    watch_keys(turn, &watch, pause_ms);
    tt__bytes_free(&keys);
    if (w->name.failed)
        tt__etcd_no_memory(turn);
}

static void fail_waiting(tt__etcd_turn *turn, const waiting *w) {
    char missing[KEYS_TEXT_SIZE] = "";
    size_t used = 0;
    for (size_t i = 0; i < w->n && used < sizeof missing; i++)
        if (!w->there[i])
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%.100s", used ? ", " : "", w->keys[i]);
    if (used >= sizeof missing)
        memcpy(missing + sizeof missing - 4, "...", 4);
    turn->status =
        tt__fail(TT_ERR_TIMEOUT, "timed out after %" PRId64 " ms waiting for keys: %s", turn->timeout_ms, missing);
}

static void await_all(tt__etcd_turn *turn, waiting *w) {
    int64_t pause_ms = 0;
    for (size_t i = 0; i < w->n; i++)
        w->order[i] = i;
    qsort_r(w->order, w->n, sizeof *w->order, compare_awaited, (void *)w->keys);
    for (;;) {
        int64_t revision;
        tt__etcd_look(turn, w->keys, w->n, w->values != NULL, &revision, waiting_found, w);
        if (turn->status || !w->missing)
            return;
        watch_missing(turn, w, revision + 1, &pause_ms);
        if (turn->status || (!w->missing && !w->values))
            return;
        if (!tt__left_ms(turn->deadline_ms)) {
            fail_waiting(turn, w);
            return;
        }
    }
}

void tt__etcd_await(tt__etcd_turn *turn, const char *const *keys, size_t n, tt_store_value *values) {
    waiting w = {.store = turn->store, .keys = keys, .values = values, .n = n, .missing = n};
    if (turn->status)
        return;
    w.there = calloc(n, sizeof *w.there);
    w.order = calloc(n, sizeof *w.order);
    if (w.there && w.order)
        await_all(turn, &w);
    else
        tt__etcd_no_memory(turn);
    for (size_t i = 0; values && turn->status && i < n; i++)
        tt_store_value_free(&values[i]);
    tt__bytes_free(&w.name);
    free(w.there);
    free(w.order);
}

/* ---- waiting for a number */

typedef struct growing {
    int64_t number, least;
} growing;

static bool take_arrivals(growing *g, const tt__etcd_kv *kv) {
    tt__bytes value = {0};
    int64_t number;
    bool good = kv->there && tt__etcd_take_base64(&value, kv->value) &&
                tt__store_value_number((tt__span){value.data, value.size}, &number);
    if (good)
        g->number = number;
    tt__bytes_free(&value);
    return g->number < g->least;
}

static bool growing_event(void *user, const tt__etcd_kv *kv, bool deleted) {
    (void)deleted;
    return take_arrivals(user, kv);
}

static void growing_found(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv) {
    (void)turn;
    (void)i;
    (void)take_arrivals(user, kv);
}

void tt__etcd_await_number(tt__etcd_turn *turn, const char *key, int64_t least, int64_t revision, int64_t *number) {
    growing g = {.number = *number, .least = least};
    tt__bytes keys = {0};
    key_watch watch = {.keys = &keys, .event = growing_event, .user = &g};
    int64_t pause_ms = 0;
    tt__etcd_put_key(&keys, turn->store, key);
    while (!turn->status && g.number < least) {
        watch.revision = revision + 1;
        watch_keys(turn, &watch, &pause_ms);
        if (turn->status || g.number >= least)
            break;
        if (!tt__left_ms(turn->deadline_ms))
            turn->status = tt__fail(TT_ERR_TIMEOUT, "timed out after %" PRId64 " ms: %" PRId64 " of %" PRId64 " came",
                                    turn->timeout_ms, g.number, least);
        else
            tt__etcd_look(turn, &key, 1, true, &revision, growing_found, &g);
    }
    *number = g.number;
    tt__bytes_free(&keys);
}
