/* Keys that vanish when their owner dies: how a coordinator that may change is elected. `store` is tt_etcd_store()'s,
 * not behind a prefix store; keys are without its prefix. Nothing here has a thread: a lease lives from its owner's
 * calls of tt__etcd_lease_beat(). Each candidate calls tt__etcd_compare_set_leased() of one key, expected empty: who
 * gets its own value back is elected, until its lease ends. */
#ifndef TT_STORE_ETCD_LEASE_H
#define TT_STORE_ETCD_LEASE_H

#include <tutti/store.h>

typedef struct tt__etcd_lease tt__etcd_lease;

/* Make a lease that ends `ttl_ms` after its last beat, in whole seconds, rounded up; servers may make it longer (by
 * default at least 2 s, with etcd's own election time). `store` is borrowed and must outlive it. timeout_ms: of this
 * call, 0 = the store's. Errors as of the store's calls; TT_ERR_INVALID also: the store is none in etcd. */
tt_status tt__etcd_lease_new(tt__etcd_lease **out, tt_store *store, int64_t ttl_ms, int64_t timeout_ms);

/* How long it really lives without a beat. */
int64_t tt__etcd_lease_ttl_ms(const tt__etcd_lease *lease);

/* Begin its time anew: at least three times in each. TT_ERR_STATE: it has ended, and its keys are gone; TT_ERR_TIMEOUT:
 * unknown, it may live on. */
tt_status tt__etcd_lease_beat(tt__etcd_lease *lease, int64_t timeout_ms);

/* End it, so that its keys vanish now, or just forget it (ends = false: they vanish in time). NULL is allowed. Keys
 * that can't be removed within timeout_ms vanish in time. */
void tt__etcd_lease_free(tt__etcd_lease *lease, bool ends, int64_t timeout_ms);

/* tt_store_compare_set() (value: required) of a key that vanishes with the lease. TT_ERR_STATE: the lease has ended. A
 * later set without a lease keeps the key. */
tt_status tt__etcd_compare_set_leased(tt__etcd_lease *lease, const char *key, const void *expected,
                                      size_t expected_size, const void *desired, size_t desired_size,
                                      int64_t timeout_ms, tt_store_value *value);

#endif
