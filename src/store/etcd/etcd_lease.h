/* What only stores in etcd can do: delete all their keys, and hold keys that vanish when their owner dies. Such keys
 * elect a coordinator.
 *
 * Each candidate calls tt__etcd_compare_set_leased() of one key, expected empty. The candidate that gets its own value
 * back is elected, until its lease ends. The owner must keep its lease alive by tt__etcd_lease_beat(); no thread does
 * that. `store` is one of tt_etcd_store(), not a prefix store over it; keys are given without its prefix. */
#ifndef TT_STORE_ETCD_LEASE_H
#define TT_STORE_ETCD_LEASE_H

#include <tutti/store.h>

/* Delete all keys of an etcd store, those under its prefix, whoever set them: what an earlier job left. */
tt_status tt__etcd_clear(tt_store *store);

typedef struct tt__etcd_lease tt__etcd_lease;

/* Make a lease that ends `ttl_ms` after its last beat, rounded up to whole seconds; servers may make it longer (by
 * default at least 2 s, because of etcd's own election time). `store` is borrowed and must outlive it. timeout_ms: of
 * this call; 0: the store's. Errors: those of the store's calls; TT_ERR_INVALID also: the store is not in etcd. */
tt_status tt__etcd_lease_new(tt__etcd_lease **out, tt_store *store, int64_t ttl_ms, int64_t timeout_ms);

/* Return how long the lease lives without a beat, as etcd decided. */
int64_t tt__etcd_lease_ttl_ms(const tt__etcd_lease *lease);

/* Begin the lease's time anew. Call this at least three times in each period. TT_ERR_STATE: the lease has ended, and
 * its keys are gone; TT_ERR_TIMEOUT: it may live on. */
tt_status tt__etcd_lease_beat(tt__etcd_lease *lease, int64_t timeout_ms);

/* End the lease in etcd, so that its keys vanish now, and free it; NULL is allowed. If ending takes longer than
 * timeout_ms, they vanish when the lease's time is over. */
void tt__etcd_lease_end(tt__etcd_lease *lease, int64_t timeout_ms);

/* Free the lease alone; NULL is allowed. Its keys vanish when its time is over. */
void tt__etcd_lease_free(tt__etcd_lease *lease);

/* tt_store_compare_set() (value: required) of a key that vanishes with the lease. TT_ERR_STATE: the lease has ended. If
 * the key is set again without a lease, it stays. */
tt_status tt__etcd_compare_set_leased(tt__etcd_lease *lease, const char *key, const void *expected,
                                      size_t expected_size, const void *desired, size_t desired_size,
                                      int64_t timeout_ms, tt_store_value *value);

#endif
