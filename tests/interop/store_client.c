/* Our client of a store that PyTorch has made: store_client PORT (served by it, in the dialect of 2.x), store_client
 * PORT old (in that of 1.13), or store_client FILE (a FileStore). Sets what the script looks for, and looks for what
 * the script has set. store_client join: a rank that joins a job as its environment says. Exit code 0, or 1 with the
 * failing line on stderr. */
#include <tutti/comm.h>
#include <tutti/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: not so: %s\n%s\n", __FILE__, __LINE__, #condition, tt_last_error()); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

static void need_value(tt_store *store, const char *key, const char *expected) {
    tt_store_value value;
    NEED(tt_store_get(store, key, &value) == TT_OK);
    NEED(value.size == strlen(expected) && !memcmp(value.data, expected, value.size));
    tt_store_value_free(&value);
}

static void every_operation(tt_store *store) {
    int64_t number;
    bool flag;
    tt_store_value value;
    const char *keys[] = {"from_python", "counter"}, *missing[] = {"from_python", "missing"};
    need_value(store, "from_python", "hello");
    NEED(tt_store_set(store, "empty", NULL, 0) == TT_OK);
    need_value(store, "empty", "");
    NEED(tt_store_add(store, "counter", 5, &number) == TT_OK && number == 15);
    NEED(tt_store_compare_set(store, "cas", NULL, 0, "first", 5, &value) == TT_OK && !strcmp(value.data, "first"));
    tt_store_value_free(&value);
    NEED(tt_store_compare_set(store, "cas", "other", 5, "second", 6, &value) == TT_OK && !strcmp(value.data, "first"));
    tt_store_value_free(&value);
    NEED(tt_store_compare_set(store, "cas", "first", 5, "second", 6, NULL) == TT_OK);
    NEED(tt_store_check(store, keys, 2, &flag) == TT_OK && flag);
    NEED(tt_store_check(store, missing, 2, &flag) == TT_OK && !flag);
    NEED(tt_store_wait(store, keys, 2, 0) == TT_OK);
    NEED(tt_store_set(store, "gone", "x", 1) == TT_OK);
    NEED(tt_store_delete_key(store, "gone", &flag) == TT_OK && flag);
    NEED(tt_store_delete_key(store, "gone", &flag) == TT_OK && !flag);
    NEED(tt_store_num_keys(store, &number) == TT_OK && number >= 4);
}

static int join_job(void) {
    tt_group *world;
    int ranks = 1;
    NEED(tt_init_process_group(&world, .timeout_ms = 100000) == TT_OK);
    NEED(tt_all_reduce(world, &ranks, 1, TT_I32, TT_SUM) == TT_OK && ranks == tt_get_world_size(world));
    tt_destroy_process_group(world);
    return 0;
}

int main(int argc, char **argv) {
    tt_store *store, *prefix;
    if (argc < 2)
        return 2;
    bool old = argc > 2 && !strcmp(argv[2], "old");
    if (!strcmp(argv[1], "join"))
        return join_job();
    bool file = argv[1][0] == '/';
    if (file)
        NEED(tt_file_store(&store, argv[1], .world_size = 2, .timeout_ms = 100000) == TT_OK);
    else
        NEED(tt_tcp_store(&store, "127.0.0.1", atoi(argv[1]), .world_size = 2, .timeout_ms = 100000,
                          .dialect = old ? TT_STORE_TORCH_1_13 : TT_STORE_TORCH_2, .torch_server = true) == TT_OK);
    every_operation(store);
    NEED(tt_prefix_store(&prefix, "pre", store) == TT_OK);
    need_value(prefix, "from_python", "below a prefix");
    NEED(tt_store_set(prefix, "from_c", "below a prefix, too", 19) == TT_OK);
    NEED(tt_store_set(store, "from_c", "hello back", 10) == TT_OK);
    need_value(store, "goodbye", "1"); /* set when the script has read our answer: a wait that is released */

    const char *never = "never";
    NEED(tt_store_wait(store, &never, 1, 100) == TT_ERR_TIMEOUT);
    /* 1.13's server can't be told that nobody waits: its late answer would be taken for this call's. */
    NEED(tt_store_set(store, "after", "x", 1) == (file || !old ? TT_OK : TT_ERR_STATE));
    tt_store_free(prefix);
    tt_store_free(store);
    return 0;
}
