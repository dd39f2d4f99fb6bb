/* What tests of stores in etcd share: one cluster, its start and end as cmocka's set-up and tear-down, a store in it,
 * and short checks. */
#ifndef TESTS_SUPPORT_ETCD_FIXTURE_H
#define TESTS_SUPPORT_ETCD_FIXTURE_H

#include "support/etcd.h"

static etcd cluster;

static inline int start_one(void **state) {
    (void)state;
    etcd_start(&cluster, 1);
    return 0;
}

static inline int start_three(void **state) {
    (void)state;
    etcd_start(&cluster, ETCD_MEMBERS);
    return 0;
}

static inline int stop_all(void **state) {
    (void)state;
    etcd_stop(&cluster);
    return 0;
}

static inline tt_store *open_at(const char *endpoints) {
    tt_store *store;
    if (tt_etcd_store(&store, endpoints, .prefix = "jobs/17", .timeout_ms = PATIENCE_MS))
        fail_msg("%s", tt_last_error());
    return store;
}

static inline tt_store *open_store(void) { return open_at(cluster.endpoints); }

static inline void good(tt_status status) {
    if (status)
        fail_msg("%s", tt_last_error());
}

static inline void fails(tt_status status, tt_status expected, const char *part) {
    if (status != expected || !strstr(tt_last_error(), part))
        fail_msg("%s, \"%s\" does not say %s, \"%s\"", tt_status_name(status), tt_last_error(),
                 tt_status_name(expected), part);
}

static inline void set(tt_store *store, const char *key, const char *value) {
    good(tt_store_set(store, key, value, strlen(value)));
}

static inline bool has(tt_store *store, const char *key) {
    bool there = false;
    good(tt_store_check(store, &key, 1, &there));
    return there;
}

#endif
