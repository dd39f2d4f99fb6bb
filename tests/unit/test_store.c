/* Every store operation against our own server, in both dialects, and through prefixes. */
#include <tutti/store.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tt_store_server *server;

static int start_server(void **state) {
    (void)state;
    return tt_store_server_start(&server, NULL, 0);
}

static int stop_server(void **state) {
    (void)state;
    tt_store_server_free(server);
    server = NULL;
    return 0;
}

static tt_store *connect_to_server(tt_store_dialect dialect) {
    tt_store *store;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .dialect = dialect), TT_OK);
    return store;
}

static void holds(tt_store *store, const char *key, const char *expected) {
    tt_store_value value;
    assert_int_equal(tt_store_get(store, key, &value), TT_OK);
    assert_int_equal(value.size, strlen(expected));
    assert_string_equal(value.data, expected);
    tt_store_value_free(&value);
}

/* What both dialects can do. */
static void common_operations(tt_store *store) {
    int64_t number = 0;
    bool flag = false;
    tt_store_value value = {0};

    assert_int_equal(tt_store_set(store, "k", "vv", 2), TT_OK);
    holds(store, "k", "vv");
    assert_int_equal(tt_store_set(store, "empty", NULL, 0), TT_OK);
    holds(store, "empty", "");

    assert_int_equal(tt_store_add(store, "n", 5, &number), TT_OK);
    assert_int_equal(number, 5);
    assert_int_equal(tt_store_add(store, "n", -7, NULL), TT_OK);
    holds(store, "n", "-2");
    assert_int_equal(tt_store_set(store, "n", "12abc", 5), TT_OK);
    assert_int_equal(tt_store_add(store, "n", 1, &number), TT_OK);
    assert_int_equal(number, 13);

    assert_int_equal(tt_store_compare_set(store, "c", "x", 1, "new", 3, &value), TT_OK);
    assert_string_equal(value.data, "x"); /* missing, expected not empty: nothing is stored */
    tt_store_value_free(&value);
    assert_int_equal(tt_store_compare_set(store, "c", NULL, 0, "new", 3, &value), TT_OK);
    assert_string_equal(value.data, "new");
    tt_store_value_free(&value);
    assert_int_equal(tt_store_compare_set(store, "c", "old", 3, "other", 5, &value), TT_OK);
    assert_string_equal(value.data, "new");
    tt_store_value_free(&value);
    assert_int_equal(tt_store_compare_set(store, "c", "new", 3, "newer", 5, NULL), TT_OK);
    holds(store, "c", "newer");

    const char *there[] = {"k", "n", "k"}, *missing[] = {"k", "no such key"};
    assert_int_equal(tt_store_check(store, there, 3, &flag), TT_OK);
    assert_true(flag);
    assert_int_equal(tt_store_check(store, missing, 2, &flag), TT_OK);
    assert_false(flag);
    assert_int_equal(tt_store_wait(store, there, 3, 0), TT_OK);
    assert_int_equal(tt_store_wait(store, NULL, 0, 0), TT_OK);

    assert_int_equal(tt_store_num_keys(store, &number), TT_OK);
    assert_int_equal(number, 4);
    assert_int_equal(tt_store_delete_key(store, "k", &flag), TT_OK);
    assert_true(flag);
    assert_int_equal(tt_store_delete_key(store, "k", &flag), TT_OK);
    assert_false(flag);
    assert_int_equal(tt_store_num_keys(store, &number), TT_OK);
    assert_int_equal(number, 3);
}

static void operations_2(void **state) {
    (void)state;
    tt_store *store = connect_to_server(TT_STORE_TORCH_2);
    common_operations(store);
    tt_store_free(store);
}

static void operations_1_13(void **state) {
    (void)state;
    tt_store *store = connect_to_server(TT_STORE_TORCH_1_13);
    common_operations(store);
    assert_int_equal(tt_store_append(store, "k", "x", 1), TT_ERR_UNSUPPORTED);
    assert_int_equal(tt_store_barrier(store, "b", 1, 0), TT_ERR_UNSUPPORTED);
    holds(store, "c", "newer"); /* refused here, so the connection is as it was */
    tt_store_free(store);
}

static void operations_below_a_prefix(void **state) {
    (void)state;
    tt_store *store = connect_to_server(TT_STORE_TORCH_2), *outer, *inner;
    assert_int_equal(tt_prefix_store(&outer, "a", store), TT_OK);
    assert_int_equal(tt_prefix_store(&inner, "b", outer), TT_OK);
    common_operations(inner);
    holds(store, "a/b/c", "newer");
    assert_int_equal(tt_store_port(inner), tt_store_server_port(server));
    tt_store_free(inner);
    tt_store_free(outer);
    tt_store_free(store);
}

static void newer_operations(void **state) {
    (void)state;
    tt_store *store = connect_to_server(TT_STORE_TORCH_2), *prefix;
    assert_int_equal(tt_prefix_store(&prefix, "p", store), TT_OK);
    assert_int_equal(tt_store_append(store, "a", "one", 3), TT_OK);
    assert_int_equal(tt_store_append(store, "a", "two", 3), TT_OK);
    holds(store, "a", "onetwo");

    const char *keys[] = {"x", "y"};
    const void *values[] = {"first", ""};
    const size_t sizes[] = {5, 0};
    tt_store_value got[2];
    assert_int_equal(tt_store_multi_set(prefix, keys, values, sizes, 2), TT_OK);
    assert_int_equal(tt_store_multi_get(prefix, keys, 2, got), TT_OK);
    assert_string_equal(got[0].data, "first");
    assert_int_equal(got[1].size, 0);
    tt_store_value_free(&got[0]);
    tt_store_value_free(&got[1]);

    char **list;
    size_t n;
    assert_int_equal(tt_store_list_keys(store, &list, &n), TT_OK);
    assert_int_equal(n, 3);
    free(list);
    assert_int_equal(tt_store_list_keys(prefix, &list, &n), TT_OK);
    assert_int_equal(n, 2);
    assert_true(!strcmp(list[0], "x") || !strcmp(list[1], "x"));
    assert_true(!strcmp(list[0], "y") || !strcmp(list[1], "y"));
    free(list);
    assert_int_equal(tt_store_barrier(store, "bar", 1, 0), TT_OK);
    tt_store_free(prefix);
    tt_store_free(store);
}

static void large_values(void **state) {
    (void)state;
    const size_t size = (size_t)3 << 20;
    unsigned char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    tt_store *store = connect_to_server(TT_STORE_TORCH_2);
    tt_store_value value;
    assert_int_equal(tt_store_set(store, "large", data, size), TT_OK);
    assert_int_equal(tt_store_get(store, "large", &value), TT_OK);
    assert_int_equal(value.size, size);
    assert_memory_equal(value.data, data, size);
    tt_store_value_free(&value);
    tt_store_free(store);
    free(data);
}

static void clients_are_counted(void **state) {
    (void)state;
    tt_store *serving, *client;
    assert_int_equal(
        tt_tcp_store(&serving, "localhost", 0, .is_server = true, .world_size = 2, .no_wait_for_workers = true), TT_OK);
    assert_int_equal(tt_tcp_store(&client, "localhost", tt_store_port(serving), .world_size = 2), TT_OK);
    int64_t count;
    assert_int_equal(tt_store_num_keys(client, &count), TT_OK);
    assert_int_equal(count, 1);
    tt_store_free(client);
    tt_store_free(serving);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, start_server, stop_server)

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(operations_2),     SERVED(operations_1_13), SERVED(operations_below_a_prefix),
        SERVED(newer_operations), SERVED(large_values),    SERVED(clients_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
