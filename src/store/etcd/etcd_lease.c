#include "store/etcd/etcd_lease.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/saved_error.h"
#include "store/etcd/etcd_clear.h"
#include "store/etcd/etcd_store.h"
#include "store/etcd/etcd_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tt__etcd_lease {
    tt_store *store;
    int64_t id, ttl_ms;
};

static tt_status lease_check_store(const tt_store *store) {
    return store && tt__is_etcd_store(store) ? TT_OK : tt__fail(TT_ERR_INVALID, "leases: expected a store in etcd");
}

tt_status tt__etcd_lease_new(tt__etcd_lease **out, tt_store *store, int64_t ttl_ms, int64_t timeout_ms) {
    *out = NULL;
    TT__TRY(lease_check_store(store));
    if (ttl_ms <= 0)
        return tt__fail(TT_ERR_INVALID, "leases: expected a time above 0 ms, got %" PRId64, ttl_ms);
    tt__etcd_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return tt__fail(TT_ERR_MEMORY, "out of memory");
    lease->store = store;
    tt__etcd_turn turn = tt__etcd_begin(store, NULL, 0, timeout_ms);
    int64_t seconds = 0;
    if (!turn.status)
        turn.status =
            tt__etcd_grant(&turn.store->client, (ttl_ms - 1) / 1000 + 1, turn.deadline_ms, &lease->id, &seconds);
    lease->ttl_ms = seconds * 1000;
    tt_status status = tt__etcd_end(&turn, "making a lease", NULL);
    if (status)
        free(lease);
    else
        *out = lease;
    return status;
}

int64_t tt__etcd_lease_ttl_ms(const tt__etcd_lease *lease) { return lease->ttl_ms; }

tt_status tt__etcd_lease_beat(tt__etcd_lease *lease, int64_t timeout_ms) {
    tt__etcd_turn turn = tt__etcd_begin(lease->store, NULL, 0, timeout_ms);
    if (!turn.status)
        turn.status = tt__etcd_keep(&turn.store->client, lease->id, turn.deadline_ms);
    return tt__etcd_end(&turn, "keeping a lease", NULL);
}

void tt__etcd_lease_free(tt__etcd_lease *lease, bool ends, int64_t timeout_ms) {
    tt__saved_error saved;
    if (!lease)
        return;
    tt__error_save(&saved);
    if (ends) {
        tt__etcd_turn turn = tt__etcd_begin(lease->store, NULL, 0, timeout_ms);
        if (!turn.status)
            turn.status = tt__etcd_revoke(&turn.store->client, lease->id, turn.deadline_ms);
        tt_ignore(tt__etcd_end(&turn, "ending a lease", NULL));
    }
    tt__error_restore(&saved);
    free(lease);
}

/* ---- keys under it */

/* Etcd says that there is no such lease: the caller's, since the marker's has just been made anew. */
static tt_status name_ended_lease(tt__etcd_turn *turn) {
    if (turn->status == TT_ERR_NET && turn->store->client.code == TT__ETCD_NOT_FOUND)
        turn->status = tt__fail(TT_ERR_STATE, "the lease has ended, and its keys are gone: it was not kept alive in "
                                              "time");
    return turn->status;
}

tt_status tt__etcd_set_leased(tt__etcd_lease *lease, const char *key, const void *value, size_t size,
                              int64_t timeout_ms) {
    tt__etcd_turn turn = tt__etcd_begin(lease->store, &key, 1, timeout_ms);
    tt__bytes ops = {0};
    tt__etcd_write write = {.ops = &ops, .revision = TT__ETCD_ALWAYS};
    bool done;
    tt__etcd_put_put(&turn, &ops, key, (tt__span){value, size}, lease->id);
    if (!turn.status)
        tt__etcd_commit(&turn, &write, &done, NULL, NULL);
    name_ended_lease(&turn);
    tt__bytes_free(&ops);
    return tt__etcd_end(&turn, "set", key);
}

tt_status tt__etcd_compare_set_leased(tt__etcd_lease *lease, const char *key, const void *expected,
                                      size_t expected_size, const void *desired, size_t desired_size,
                                      int64_t timeout_ms, tt_store_value *value) {
    tt__etcd_turn turn = tt__etcd_begin(lease->store, &key, 1, timeout_ms);
    tt__etcd_compare_set_in(&turn, key, (tt__span){expected, expected_size}, (tt__span){desired, desired_size},
                            lease->id, value);
    name_ended_lease(&turn);
    return tt__etcd_end(&turn, "compare_set", key);
}

/* ---- changes */

void tt__etcd_changes_free(tt__etcd_change_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i].key);
        tt_store_value_free(&list->items[i].value);
    }
    free(list->items);
    *list = (tt__etcd_change_list){0};
}

typedef struct collecting {
    tt__etcd_turn *turn;
    tt__etcd_change_list *list;
    int64_t revision; /* of the last change that was seen */
} collecting;

static void collect_change(collecting *c, const tt__etcd_kv *kv, bool deleted) {
    tt__bytes key = {0};
    tt__etcd_change_list *list = c->list;
    if (!tt__etcd_key_of(c->turn->store, kv, &key)) { /* a marker */
        if (key.failed)
            tt__etcd_no_memory(c->turn);
        tt__bytes_free(&key);
        return;
    }
    tt__etcd_change change = {.key = (char *)key.data, .deleted = deleted, .revision = kv->revision};
    if (!deleted)
        tt__etcd_value_of(c->turn, kv, &change.value);
    tt__etcd_change *items = c->turn->status ? NULL : realloc(list->items, (list->n + 1) * sizeof *items);
    if (!items) {
        tt__etcd_no_memory(c->turn);
        free(change.key);
        tt_store_value_free(&change.value);
        return;
    }
    list->items = items;
    list->items[list->n++] = change;
}

static void collect_found(tt__etcd_turn *turn, void *user, const tt__etcd_kv *kv) {
    (void)turn;
    collect_change(user, kv, false);
}

static bool collect_event(void *user, const tt__etcd_kv *kv, bool deleted) {
    collecting *c = user;
    collect_change(c, kv, deleted);
    c->revision = kv->revision > c->revision ? kv->revision : c->revision;
    return !c->turn->status;
}

static bool enough_collected(void *user) { return ((collecting *)user)->list->n > 0; }

tt_status tt__etcd_list(tt_store *store, const char *prefix, int64_t timeout_ms, tt__etcd_change_list *list,
                        int64_t *revision) {
    *list = (tt__etcd_change_list){0};
    TT__TRY(lease_check_store(store));
    tt__etcd_turn turn = tt__etcd_begin(store, &prefix, 1, timeout_ms);
    collecting c = {&turn, list, 0};
    tt__etcd_scan(&turn, prefix, true, revision, collect_found, &c);
    if (turn.status)
        tt__etcd_changes_free(list);
    return tt__etcd_end(&turn, "listing the keys below", prefix);
}

tt_status tt__etcd_changes(tt_store *store, const char *prefix, int64_t timeout_ms, tt__etcd_change_list *list,
                           int64_t *revision) {
    *list = (tt__etcd_change_list){0};
    TT__TRY(lease_check_store(store));
    tt__etcd_turn turn = tt__etcd_begin(store, &prefix, 1, timeout_ms);
    collecting c = {&turn, list, *revision};
    tt__bytes keys = {0};
    int64_t pause_ms = 0;
    tt__etcd_put_key(&keys, turn.store, prefix);
    tt__etcd_put_end(&keys, turn.store, prefix);
    tt__etcd_watch watch = {.keys = &keys, .event = collect_event, .enough = enough_collected, .user = &c};
    while (!turn.status && !list->n && tt__left_ms(turn.deadline_ms)) {
        watch.revision = c.revision + 1;
        tt__etcd_watch_keys(&turn, &watch, &pause_ms);
        if (watch.partial) { /* all of it once more: what is missing may be of the same revision */
            tt__etcd_changes_free(list);
            c.revision = watch.revision - 1;
        }
        if (watch.compacted && !turn.status)
            turn.status = tt__fail(TT_ERR_NOT_FOUND,
                                   "etcd has forgotten what happened since revision %" PRId64
                                   " (it was compacted): list the keys anew",
                                   c.revision);
    }
    if (turn.status)
        tt__etcd_changes_free(list);
    else
        *revision = c.revision;
    tt__bytes_free(&keys);
    return tt__etcd_end(&turn, "watching the keys below", prefix);
}
