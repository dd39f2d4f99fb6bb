/* Leases and watches in etcd: keys that vanish with their owner, elections, changes that others see. */
#include "support/etcd_fixture.h"

#include "base/machine/clock.h"
#include "store/etcd/etcd_client.h"
#include "store/etcd/etcd_lease.h"

static void keys_vanish_with_their_owner(void **state) {
    (void)state;
    tt_store *owner = open_store(), *other = open_store();
    tt__etcd_lease *lease;
    tt__etcd_change_list list;
    tt_store_value value;
    int64_t revision;
    good(tt__etcd_lease_new(&lease, owner, 1000, PATIENCE_MS));
    assert_true(tt__etcd_lease_ttl_ms(lease) >= 1000);
    good(tt__etcd_list(other, "members/", PATIENCE_MS, &list, &revision));
    assert_int_equal(list.n, 0);
    set(other, "outside", "1");
    good(tt__etcd_set_leased(lease, "members/7", "here", 4, PATIENCE_MS));
    set(other, "stays", "1");
    good(tt__etcd_changes(other, "members/", PATIENCE_MS, &list, &revision));
    assert_int_equal(list.n, 1);
    assert_string_equal(list.items[0].key, "members/7");
    assert_string_equal(list.items[0].value.data, "here");
    assert_false(list.items[0].deleted);
    tt__etcd_changes_free(&list);
    good(tt__etcd_compare_set_leased(lease, "leader", NULL, 0, "7", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "7");
    tt_store_value_free(&value);
    good(tt__etcd_lease_beat(lease, PATIENCE_MS));
    good(tt__etcd_list(other, "", PATIENCE_MS, &list, &(int64_t){0}));
    assert_int_equal(list.n, 4);
    tt__etcd_changes_free(&list);
    /* no more beats */
    good(tt__etcd_changes(other, "members/", PATIENCE_MS, &list, &revision));
    assert_int_equal(list.n, 1);
    assert_true(list.items[0].deleted);
    assert_string_equal(list.items[0].key, "members/7");
    tt__etcd_changes_free(&list);
    assert_false(has(other, "leader"));
    assert_true(has(other, "stays"));
    fails(tt__etcd_lease_beat(lease, PATIENCE_MS), TT_ERR_STATE, "the lease has ended");
    fails(tt__etcd_set_leased(lease, "members/7", "here", 4, PATIENCE_MS), TT_ERR_STATE, "the lease has ended");
    good(tt__etcd_changes(other, "members/", 50, &list, &revision)); /* time is up */
    assert_int_equal(list.n, 0);
    tt__etcd_lease_free(lease, true, PATIENCE_MS);
    tt_store_free(owner);
    tt_store_free(other);
}

/* Two candidates: one is elected, and when it leaves, the other. */
/* Who watches for short times only, at a member that is stopped, turns to the others. */
static void watchers_leave_a_frozen_member(void **state) {
    (void)state;
    tt_store *watcher = open_store(), *other = open_at(cluster.one[1]);
    tt__etcd_change_list list;
    int64_t revision;
    good(tt__etcd_list(watcher, "", PATIENCE_MS, &list, &revision));
    kill(cluster.pids[0], SIGSTOP);
    set(other, "k", "v");
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    do
        good(tt__etcd_changes(watcher, "", 300, &list, &revision));
    while (!list.n && tt__left_ms(deadline));
    kill(cluster.pids[0], SIGCONT);
    assert_int_equal(list.n, 1);
    tt__etcd_changes_free(&list);
    tt_store_free(watcher);
    tt_store_free(other);
}

static void a_leader_is_elected(void **state) {
    (void)state;
    tt_store *a = open_store(), *b = open_store();
    tt__etcd_lease *of_a, *of_b;
    tt__etcd_change_list list;
    tt_store_value value;
    int64_t revision;
    good(tt__etcd_lease_new(&of_a, a, 600000, PATIENCE_MS));
    good(tt__etcd_lease_new(&of_b, b, 600000, PATIENCE_MS));
    good(tt__etcd_compare_set_leased(of_a, "leader", NULL, 0, "a", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "a");
    tt_store_value_free(&value);
    good(tt__etcd_compare_set_leased(of_b, "leader", NULL, 0, "b", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "a");
    tt_store_value_free(&value);
    good(tt__etcd_list(b, "leader", PATIENCE_MS, &list, &revision));
    assert_int_equal(list.n, 1);
    tt__etcd_changes_free(&list);
    tt__etcd_lease_free(of_a, true, PATIENCE_MS);
    good(tt__etcd_changes(b, "leader", PATIENCE_MS, &list, &revision));
    assert_true(list.n == 1 && list.items[0].deleted);
    tt__etcd_changes_free(&list);
    good(tt__etcd_compare_set_leased(of_b, "leader", NULL, 0, "b", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "b");
    tt_store_value_free(&value);
    tt__etcd_lease_free(of_b, false, 0);
    tt_store_free(a);
    tt_store_free(b);
}

static void leases_need_etcd(void **state) {
    (void)state;
    tt_store *hash;
    tt__etcd_lease *lease;
    tt__etcd_change_list list;
    int64_t revision = 0;
    good(tt_hash_store(&hash, 0));
    fails(tt__etcd_lease_new(&lease, hash, 1000, 0), TT_ERR_INVALID, "a store in etcd");
    fails(tt__etcd_list(hash, "", 0, &list, &revision), TT_ERR_INVALID, "a store in etcd");
    tt_store_free(hash);
}

/* Etcd forgets what happened before: the watcher is told, and the waiters don't care. */
static void compacted_changes_are_told(void **state) {
    (void)state;
    tt_store *store = open_store();
    tt__etcd_change_list list;
    tt__etcd_client client;
    tt__span answer;
    int64_t before, now;
    char body[64];
    good(tt__etcd_list(store, "", PATIENCE_MS, &list, &before));
    for (int i = 0; i < 5; i++)
        set(store, "k", "v");
    good(tt__etcd_list(store, "none", PATIENCE_MS, &list, &now));
    good(tt__etcd_client_begin(&client, cluster.one[0], &(tt__etcd_credentials){0}));
    int size = snprintf(body, sizeof body, "{\"revision\":\"%lld\"}", (long long)now);
    good(tt__etcd_call(&client, "/v3/kv/compaction", (tt__span){(const uint8_t *)body, (size_t)size}, 65536,
                       tt__deadline_ms(PATIENCE_MS), &answer));
    tt__etcd_client_end(&client);
    fails(tt__etcd_changes(store, "", PATIENCE_MS, &list, &before), TT_ERR_NOT_FOUND, "compacted");
    tt_store_free(store);
}

int main(void) {
    if (!etcd_is_installed()) {
        puts("skipped: etcd is not installed (package etcd-server)");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_vanish_with_their_owner, start_one, stop_all),
        cmocka_unit_test_setup_teardown(watchers_leave_a_frozen_member, start_three, stop_all),
        cmocka_unit_test_setup_teardown(a_leader_is_elected, start_one, stop_all),
        cmocka_unit_test_setup_teardown(compacted_changes_are_told, start_one, stop_all),
        cmocka_unit_test(leases_need_etcd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
