/* A store of the program's own has no life that its clients could prove, and may give rank 1 rank 0's table of
 * algorithms as an earlier job with the same secret left it. Ranks of several hosts take none that was not written in
 * their own meeting. */
#include "support/hosts.h"
#include "support/ranks.h"

#include <sys/mman.h>

/* What the store remembers from one job to the next. */
typedef struct memory {
    size_t size;
    char table[1 << 16];
    int replayed, refused;
} memory;

static memory *kept;
static bool replays;

static tt_status lying_set(void *store, const char *key, const void *value, size_t size) {
    return tt_store_set(store, key, value, size);
}

static tt_status lying_get(void *store, const char *key, int64_t timeout_ms, tt_store_value *value) {
    tt_store_set_timeout_ms(store, timeout_ms);
    tt_status status = tt_store_get(store, key, value);
    if (status || !strstr(key, "/tuning"))
        return status;
    if (!replays) {
        CHECK(value->size <= sizeof kept->table);
        kept->size = value->size;
        memcpy(kept->table, value->data, value->size);
    } else if (!kept->replayed++) {
        tt_store_value_free(value);
        value->data = calloc(1, kept->size + 1);
        CHECK(value->data);
        memcpy(value->data, kept->table, kept->size);
        value->size = kept->size;
    }
    return TT_OK;
}

static tt_status lying_add(void *store, const char *key, int64_t delta, int64_t *result) {
    return tt_store_add(store, key, delta, result);
}

static tt_status lying_wait(void *store, const char *const *keys, int64_t n, int64_t timeout_ms) {
    return tt_store_wait(store, keys, n, timeout_ms);
}

static tt_status lying_check(void *store, const char *const *keys, int64_t n, bool *all) {
    return tt_store_check(store, keys, n, all);
}

static const tt_store_class liar = {
    .set = lying_set, .get = lying_get, .add = lying_add, .wait = lying_wait, .check = lying_check};

static void on_log(tt_log_level level, const char *line, void *user) {
    (void)user;
    kept->refused +=
        level == TT_LOG_WARNING && strstr(line, "\"tutti/0/1/tuning\" as the words of rank 0 is refused") != NULL;
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const char *algorithms[] = {"all_reduce=ring", "all_reduce=halving_doubling"};
    tt_store *lying;
    tt_group *group = NULL;
    float x[1000] = {0};
    replays = *(const bool *)arg;
    hosts_enter(HOSTS_ALONE, rank);
    CHECK(!setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1));
    tt_set_log(on_log, NULL);
    CHECK_OK(tt_store_new(&lying, &liar, store, .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_init_process_group(&group, .store = lying, .rank = rank, .world_size = world,
                                   .algorithms = algorithms[replays], .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    CHECK_OK(tt_all_reduce(group, x, 1000, TT_F32, TT_SUM));
    tt_destroy_process_group(group);
    tt_store_free(lying);
    return 0;
}

static void an_earlier_table_is_refused(void **state) {
    (void)state;
    kept = mmap(NULL, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(kept, MAP_FAILED);
    with_ranks(2, body, &(bool){false});
    assert_true(kept->size > 0);
    with_ranks(2, body, &(bool){true});
    assert_int_equal(kept->replayed, 2); /* asked for again */
    assert_int_equal(kept->refused, 1);
    munmap(kept, sizeof *kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_earlier_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
