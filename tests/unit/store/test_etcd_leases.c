/* Leases in etcd: keys that vanish with their owner, and elections. */
#include "support/etcd_fixture.h"

#include "base/machine/clock.h"
#include "store/etcd/etcd_lease.h"

static void keys_vanish_with_their_owner(void **state) {
    (void)state;
    tt_store *owner = open_store(), *other = open_store();
    tt__etcd_lease *lease;
    tt_store_value value;
    good(tt__etcd_lease_new(&lease, owner, 1000, PATIENCE_MS));
    assert_true(tt__etcd_lease_ttl_ms(lease) >= 1000);
    set(other, "stays", "1");
    good(tt__etcd_compare_set_leased(lease, "leader", NULL, 0, "7", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "7");
    tt_store_value_free(&value);
    good(tt__etcd_lease_beat(lease, PATIENCE_MS));
    assert_true(has(other, "leader"));
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    while (has(other, "leader")) /* no more beats */
        assert_true(tt__left_ms(deadline));
    assert_true(has(other, "stays"));
    fails(tt__etcd_lease_beat(lease, PATIENCE_MS), TT_ERR_STATE, "the lease has ended");
    fails(tt__etcd_compare_set_leased(lease, "leader", NULL, 0, "7", 1, PATIENCE_MS, &value), TT_ERR_STATE,
          "the lease has ended");
    tt__etcd_lease_end(lease, PATIENCE_MS);
    tt_store_free(owner);
    tt_store_free(other);
}

/* Who waits for short times only, at a member that is stopped, turns to the others. */
static void waiters_leave_a_frozen_member(void **state) {
    (void)state;
    tt_store *waiter = open_store(), *other = open_at(cluster.one[1]);
    assert_false(has(waiter, "k"));
    kill(cluster.pids[0], SIGSTOP);
    set(other, "k", "v");
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    tt_status status;
    do
        status = tt_store_wait(waiter, (const char *[]){"k"}, 1, 300);
    while (status == TT_ERR_TIMEOUT && tt__left_ms(deadline));
    kill(cluster.pids[0], SIGCONT);
    good(status);
    tt_store_free(waiter);
    tt_store_free(other);
}

/* Two candidates: one is elected, and when it leaves, the other. */
static void a_leader_is_elected(void **state) {
    (void)state;
    tt_store *a = open_store(), *b = open_store();
    tt__etcd_lease *of_a, *of_b;
    tt_store_value value;
    good(tt__etcd_lease_new(&of_a, a, 600000, PATIENCE_MS));
    good(tt__etcd_lease_new(&of_b, b, 600000, PATIENCE_MS));
    good(tt__etcd_compare_set_leased(of_a, "leader", NULL, 0, "a", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "a");
    tt_store_value_free(&value);
    good(tt__etcd_compare_set_leased(of_b, "leader", NULL, 0, "b", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "a");
    tt_store_value_free(&value);
    tt__etcd_lease_end(of_a, PATIENCE_MS);
    good(tt__etcd_compare_set_leased(of_b, "leader", NULL, 0, "b", 1, PATIENCE_MS, &value));
    assert_string_equal(value.data, "b");
    tt_store_value_free(&value);
    tt__etcd_lease_free(of_b);
    tt_store_free(a);
    tt_store_free(b);
}

static void leases_need_etcd(void **state) {
    (void)state;
    tt_store *hash;
    tt__etcd_lease *lease;
    good(tt_hash_store(&hash, 0));
    fails(tt__etcd_lease_new(&lease, hash, 1000, 0), TT_ERR_INVALID, "a store in etcd");
    tt_store_free(hash);
}

int main(void) {
    if (!etcd_is_installed()) {
        puts("skipped: etcd is not installed (package etcd-server)");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_vanish_with_their_owner, start_one, stop_all),
        cmocka_unit_test_setup_teardown(waiters_leave_a_frozen_member, start_three, stop_all),
        cmocka_unit_test_setup_teardown(a_leader_is_elected, start_one, stop_all),
        cmocka_unit_test(leases_need_etcd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
