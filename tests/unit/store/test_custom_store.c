/* A store whose calls are functions of somebody else's, here of a hash store: what the class has reaches it, what is
 * made of several calls works, and what it lacks is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/store.h>

static int destroyed;

static tt_status inner_set(void *user, const char *key, const void *value, size_t size) {
    return tt_store_set(user, key, value, size);
}
static tt_status inner_get(void *user, const char *key, int64_t timeout_ms, tt_store_value *value) {
    tt_store_set_timeout_ms(user, timeout_ms);
    return tt_store_get(user, key, value);
}
static tt_status inner_add(void *user, const char *key, int64_t delta, int64_t *result) {
    return tt_store_add(user, key, delta, result);
}
static tt_status inner_wait(void *user, const char *const *keys, int64_t n, int64_t timeout_ms) {
    return tt_store_wait(user, keys, n, timeout_ms);
}
static tt_status inner_check(void *user, const char *const *keys, int64_t n, bool *all) {
    return tt_store_check(user, keys, n, all);
}
static void inner_destroy(void *user) {
    tt_store_free(user);
    destroyed++;
}

static const tt_store_class plain = {.name = "a store in a store",
                                     .set = inner_set,
                                     .get = inner_get,
                                     .add = inner_add,
                                     .wait = inner_wait,
                                     .check = inner_check,
                                     .destroy = inner_destroy};

static tt_store *make_store(void) {
    tt_store *inner = NULL, *made = NULL;
    assert_int_equal(tt_hash_store(&inner, 20), TT_OK);
    assert_int_equal(tt_store_new(&made, &plain, inner, .timeout_ms = 20), TT_OK);
    return made;
}

static void calls_reach_it(void **state) {
    (void)state;
    destroyed = 0;
    tt_store *s = make_store();
    const char *const keys[] = {"a", "b"};
    tt_store_value value, both[2];
    int64_t sum;
    bool all;
    assert_int_equal(tt_store_set(s, "a", "one", 3), TT_OK);
    assert_int_equal(tt_store_get(s, "a", &value), TT_OK);
    assert_string_equal(value.data, "one");
    tt_store_value_free(&value);
    assert_int_equal(tt_store_check(s, keys, 2, &all), TT_OK);
    assert_false(all);
    assert_int_equal(tt_store_wait(s, keys, 2, 5), TT_ERR_TIMEOUT);
    assert_int_equal(tt_store_multi_set(s, keys, (const void *[]){"x", "yz"}, (size_t[]){1, 2}, 2), TT_OK);
    assert_int_equal(tt_store_multi_get(s, keys, 2, both), TT_OK);
    assert_string_equal(both[1].data, "yz");
    tt_store_value_free(&both[0]);
    tt_store_value_free(&both[1]);
    assert_int_equal(tt_store_add(s, "n", 5, &sum), TT_OK);
    assert_int_equal(sum, 5);
    assert_int_equal(tt_store_timeout_ms(s), 20);
    tt_store_free(s);
    assert_int_equal(destroyed, 1);
}

static void barriers_open_when_all_came(void **state) {
    (void)state;
    tt_store *s = make_store();
    assert_int_equal(tt_store_barrier(s, "meeting", 2, 5), TT_ERR_TIMEOUT);
    assert_int_equal(tt_store_barrier(s, "meeting", 2, 5), TT_OK);
    tt_store_free(s);
}

static void what_it_lacks_is_named(void **state) {
    (void)state;
    tt_store *s = make_store();
    int64_t n;
    assert_int_equal(tt_store_num_keys(s, &n), TT_ERR_UNSUPPORTED);
    assert_string_equal(tt_last_error(), "tt_store_num_keys: a store in a store has no such call");
    assert_int_equal(tt_store_append(s, "a", "b", 1), TT_ERR_UNSUPPORTED);
    assert_int_equal(tt_store_delete_key(s, "a", NULL), TT_ERR_UNSUPPORTED);
    tt_store_free(s);
}

static void what_is_required_is_named(void **state) {
    (void)state;
    tt_store *inner = NULL, *made = NULL;
    tt_store_class lacks = plain;
    assert_int_equal(tt_hash_store(&inner, 20), TT_OK);
    lacks.wait = NULL;
    destroyed = 0;
    assert_int_equal(tt_store_new(&made, &lacks, inner), TT_ERR_INVALID);
    assert_null(made);
    assert_int_equal(destroyed, 1);
    assert_string_equal(tt_last_error(),
                        "tt_store_new: the class \"a store in a store\" has no function `wait`, which is required");
    assert_int_equal(tt_store_new(&made, (const tt_store_class *)NULL, NULL), TT_ERR_INVALID);
    lacks = plain;
    lacks.destroy = NULL;
    assert_int_equal(tt_store_new(&made, &lacks, NULL, .timeout_ms = -1), TT_ERR_INVALID);
    assert_int_equal(tt_store_new(&made, &lacks, NULL), TT_OK);
    assert_int_equal(tt_store_timeout_ms(made), 300000);
    tt_store_free(made);
}

/* One of an older header, whose struct ends earlier. */
static void a_shorter_class_is_taken(void **state) {
    (void)state;
    tt_store *made = NULL;
    tt_store_class old = plain;
    int64_t n;
    old.num_keys = (tt_status(*)(void *, int64_t *))(uintptr_t)1; /* not looked at: beyond the size */
    tt_store_new_args args = {.out = &made, .cls = &old, .cls_size = offsetof(tt_store_class, compare_set)};
    assert_int_equal(tt_store_new_with(&args, offsetof(tt_store_new_args, tt_end)), TT_OK);
    assert_int_equal(tt_store_num_keys(made, &n), TT_ERR_UNSUPPORTED);
    tt_store_free(made);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_reach_it), cmocka_unit_test(barriers_open_when_all_came),
                                       cmocka_unit_test(what_it_lacks_is_named),
                                       cmocka_unit_test(what_is_required_is_named),
                                       cmocka_unit_test(a_shorter_class_is_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
