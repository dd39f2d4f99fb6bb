/* Ranks that meet in etcd: several jobs in a row at one address, which leave nothing; numbered by the address or by
 * their launcher; and addresses that are none. */
#include "support/etcd_fixture.h"

#include "store/etcd/etcd_lease.h"

#include <stdlib.h>
#include <tutti/comm.h>

enum { WORLD = 3, JOBS = 3 };

static char url[192];

static int start_all(void **state) {
    (void)state;
    etcd_start(&cluster, 1);
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d/jobs/17", cluster.ports[0]);
    return 0;
}

static int64_t keys_below(const char *prefix) {
    tt_store *store;
    int64_t n = -1;
    if (tt_etcd_store(&store, cluster.endpoints, .prefix = prefix, .timeout_ms = PATIENCE_MS) ||
        tt_store_num_keys(store, &n))
        fail_msg("%s", tt_last_error());
    tt_store_free(store);
    return n;
}

typedef struct how {
    bool by_environment;
    const char *transport;
} how;

static int join_jobs(int rank, const how *h) {
    char own[256], number[8];
    snprintf(own, sizeof own, "%s?rank=%d&world_size=%d", url, rank, WORLD);
    snprintf(number, sizeof number, "%d", rank);
    if (h->by_environment &&
        (setenv("RANK", number, 1) || setenv("WORLD_SIZE", "3", 1) || setenv("TT_INIT_METHOD", url, 1)))
        return 1;
    for (int job = 0; job < JOBS; job++) {
        tt_group *world = NULL, *sub = NULL;
        float sum = 1, pair = 1;
        tt_status status = tt_init_process_group(&world, .init_method = h->by_environment ? NULL : own,
                                                 .transport = h->transport, .timeout_ms = PATIENCE_MS);
        if (!status)
            status = tt_all_reduce(world, &sum, 1, TT_F32, TT_SUM);
        if (!status)
            status = tt_new_group(&sub, world, ((int[]){0, 2}), 2);
        if (!status && sub)
            status = tt_all_reduce(sub, &pair, 1, TT_F32, TT_SUM);
        if (status)
            fprintf(stderr, "rank %d, job %d: %s\n", rank, job, tt_last_error());
        tt_destroy_process_group(sub);
        tt_destroy_process_group(world);
        if (status || sum != WORLD || pair != (rank == 1 ? 1 : 2))
            return 1;
    }
    return 0;
}

static void ranks_meet(const how *h) {
    pid_t pids[WORLD];
    fflush(NULL);
    for (int r = 0; r < WORLD; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (!pids[r]) {
            alarm((unsigned)test_seconds() * 3 / 4);
            _exit(join_jobs(r, h));
        }
    }
    for (int r = 0; r < WORLD; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(keys_below("jobs/17"), 0);
}

static void ranks_meet_at_an_address(void **state) {
    (void)state;
    ranks_meet(&(how){.transport = "auto"});
    ranks_meet(&(how){.transport = "tcp"});
}

static void launchers_may_number_them(void **state) {
    (void)state;
    ranks_meet(&(how){.by_environment = true});
}

static void who_is_missing_is_named(void **state) {
    (void)state;
    tt_group *world;
    assert_int_equal(tt_init_process_group(&world, .init_method = url, .rank = 0, .world_size = 2, .timeout_ms = 1500),
                     TT_ERR_TIMEOUT);
    if (!strstr(tt_last_error(), "rank 1 of 2 did not join"))
        fail_msg("%s", tt_last_error());
}

static void bad_addresses(void **state) {
    (void)state;
    static const struct {
        const char *method, *text;
    } cases[] = {
        {"etcd://", "the host is missing"},
        {"etcd:///job?rank=0&world_size=2", "the host is missing"},
        {"etcd://host?rank=0&world_size=2", "the job's name is missing"},
        {"etcd://host/?rank=0&world_size=2", "the job's name is missing"},
        {"etcds://host//?rank=0&world_size=2", "the job's name is missing"},
        {"etcd://host/job?rank=0", "world size is missing"},
        {"etcd://host/job?rank=2&world_size=2", "world of 2"},
        {"etcd://host/job?world_size=2&rnak=0", "rank is missing"},
        {"etcd://host/job", "WORLD_SIZE"},
        {"etcd://host:x/job?rank=0&world_size=2", "a port is a number"},
        {"etcdd://host/job?rank=0&world_size=2", "etcd://host:port/job"},
    };
    tt_group *group;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (tt_init_process_group(&group, .init_method = cases[i].method) != TT_ERR_INVALID ||
            !strstr(tt_last_error(), cases[i].text))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].method, tt_last_error(), cases[i].text);
}

int main(void) {
    if (!etcd_is_installed()) {
        puts("skipped: etcd is not installed (package etcd-server)");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_at_an_address),
        cmocka_unit_test(launchers_may_number_them),
        cmocka_unit_test(who_is_missing_is_named),
        cmocka_unit_test(bad_addresses),
    };
    return cmocka_run_group_tests(tests, start_all, stop_all);
}
