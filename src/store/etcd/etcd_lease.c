#include "store/etcd/etcd_lease.h"

#include "base/error.h"
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

tt_status tt__etcd_compare_set_leased(tt__etcd_lease *lease, const char *key, const void *expected,
                                      size_t expected_size, const void *desired, size_t desired_size,
                                      int64_t timeout_ms, tt_store_value *value) {
    tt__etcd_turn turn = tt__etcd_begin(lease->store, &key, 1, timeout_ms);
    tt__etcd_compare_set_in(&turn, key, (tt__span){expected, expected_size}, (tt__span){desired, desired_size},
                            lease->id, value);
    name_ended_lease(&turn);
    return tt__etcd_end(&turn, "compare_set", key);
}
