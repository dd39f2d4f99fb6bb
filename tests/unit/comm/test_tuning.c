/* The table of algorithms: what its lines mean, what is wrong with others, and where it comes from. */
#include "comm/collective/choose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static tt__world world;
static tt__native native = {.world = &world};
static tt__peer peers[1024];
static int ranks[1024];

/* A group of `size` ranks on `hosts` hosts, not on shared memory. */
static tt_group group_of(int size, int hosts) {
    tt_group group = {.size = size, .ranks = ranks, .native = &native};
    world.peers = peers;
    for (int r = 0; r < size; r++) {
        ranks[r] = r;
        peers[r].host = r % hosts;
    }
    return group;
}

static const char *chosen(const char *table, int size, int hosts, tt_op op, size_t bytes) {
    static tt__tuning tuning;
    const tt_group group = group_of(size, hosts);
    const int64_t counts[1024] = {0};
    const tt_call call = {.op = op, .dtype = TT_U8, .count = bytes, .recv_counts = counts};
    assert_int_equal(tt__tuning_parse(&tuning, table, "the test's table"), TT_OK);
    const tt__algorithm *algorithm = tt__choose_by(&tuning, &group, &call);
    return algorithm ? algorithm->name : NULL;
}

static void test_first_line_that_fits(void **state) {
    static const char table[] = "# a comment\n"
                                "\n"
                                "all_reduce 4 * 1K direct   # small\n"
                                "all_reduce 4 2- * slices\n"
                                "all_reduce 3-8 1 4M halving_doubling\n"
                                "all_reduce * * * ring\n"
                                "broadcast * * 2 chain";
    (void)state;
    assert_string_equal(chosen(table, 4, 1, TT_OP_ALL_REDUCE, 1024), "direct");
    assert_string_equal(chosen(table, 4, 1, TT_OP_ALL_REDUCE, 1025), "halving_doubling");
    assert_string_equal(chosen(table, 4, 2, TT_OP_ALL_REDUCE, 1025), "slices");
    assert_string_equal(chosen(table, 8, 2, TT_OP_ALL_REDUCE, 8), "ring");
    assert_string_equal(chosen(table, 8, 1, TT_OP_ALL_REDUCE, (4 << 20) + 1), "ring");
    assert_string_equal(chosen(table, 5, 1, TT_OP_BROADCAST, 2), "chain");
    assert_string_equal(chosen(table, 5, 1, TT_OP_BROADCAST, 3), "direct"); /* no line: the first that serves */
    assert_string_equal(chosen("", 65, 1, TT_OP_ALL_REDUCE, 8), "halving_doubling");
    assert_string_equal(chosen("all_reduce * * * direct", 65, 1, TT_OP_ALL_REDUCE, 8), "halving_doubling");
    assert_string_equal(chosen("all_reduce * * * hierarchical", 4, 2, TT_OP_ALL_REDUCE, 8), "direct");
    assert_string_equal(chosen(table, 1, 1, TT_OP_ALL_REDUCE, 8), "direct");
}

/* No algorithm that sums in an order of its own is chosen by default, and every op has one for every world. */
static void test_built_in_table(void **state) {
    static const size_t sizes[] = {0, 8, 4096, 100000, 1 << 30};
    static const int worlds[] = {1, 2, 3, 8, 9, 64, 65, 1024};
    (void)state;
    for (int op = TT_OP_BARRIER; op <= TT_OP_ALL_TO_ALL_V; op++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
                const char *name = chosen(tt__tuning_default(), worlds[w], 1, (tt_op)op, sizes[i]);
                assert_non_null(name);
                assert_true(op != TT_OP_ALL_REDUCE || strcmp(name, "ring") != 0);
            }
}

static void refuse(const char *table, const char *expected) {
    static tt__tuning tuning;
    assert_int_equal(tt__tuning_parse(&tuning, table, "FILE"), TT_ERR_INVALID);
    if (!strstr(tt_last_error(), expected))
        fail_msg("expected \"%s\" in \"%s\"", expected, tt_last_error());
}

static void test_errors_name_line_and_cause(void **state) {
    char line[400], many[64 * 600] = "";
    (void)state;
    refuse("all_reduce * * * rong\n", "FILE, line 1: all_reduce has no algorithm \"rong\"; expected");
    refuse("\n#\nall_reduces * * * ring\n", "FILE, line 3: expected an operation");
    refuse("all_reduce * * ring", "expected 5 columns (op, ranks, hosts, bytes, algorithm), got 4");
    refuse("all_reduce * * * ring ring", "got 6 or more");
    refuse("all_reduce 4-2 * * ring", "ranks: expected a number, \"A-B\", \"A-\" or \"*\", got \"4-2\"");
    refuse("all_reduce x * * ring", "ranks: expected a number");
    refuse("all_reduce * 1,2 * ring", "hosts: expected a number");
    refuse("all_reduce * * 1T ring", "bytes: expected a number, with K, M or G, or \"*\", got \"1T\"");
    refuse("all_reduce * * -1 ring", "bytes: expected a number");
    refuse("send * * * ring", "send has no algorithms to choose from");
    memset(line, ' ', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    refuse(line, "expected at most 255 characters, got 399");
    for (int i = 0; i < TT__RULES + 1; i++)
        strcat(many, "all_reduce * * * ring\n");
    refuse(many, "line 513: more than 512 rules");
}

static tt_status text_of(const char *algorithms, const char *variable, const char *file, char **text) {
    variable ? setenv("TT_ALGORITHMS", variable, 1) : unsetenv("TT_ALGORITHMS");
    file ? setenv("TT_TUNING", file, 1) : unsetenv("TT_TUNING");
    return tt__tuning_text(algorithms, text);
}

static void test_where_the_table_comes_from(void **state) {
    char path[] = "/tmp/tuning-XXXXXX", *text = NULL;
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "gather * * * binomial\n", 22), 22);
    assert_int_equal(text_of("all_reduce=ring", "all_reduce=slices", path, &text), TT_OK);
    assert_string_equal(text, "all_reduce * * * ring\ngather * * * binomial\n");
    free(text);
    assert_int_equal(text_of(NULL, "all_reduce=slices,broadcast=chain", path, &text), TT_OK);
    assert_string_equal(text, "all_reduce * * * slices\nbroadcast * * * chain\ngather * * * binomial\n");
    free(text);
    assert_int_equal(write(fd, "nonsense\n", 9), 9);
    assert_int_equal(text_of(NULL, NULL, path, &text), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), path));
    assert_non_null(strstr(tt_last_error(), "line 2: expected 5 columns"));
    assert_null(text);
    unlink(path);
    close(fd);
    assert_int_equal(text_of(NULL, NULL, path, &text), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), path));
    assert_int_equal(mkfifo(path, 0600), 0); /* which nobody writes to: to wait for it would be for ever */
    assert_int_equal(text_of(NULL, NULL, path, &text), TT_ERR_IO);
    unlink(path);
    assert_int_equal(text_of(NULL, NULL, "/dev/null", &text), TT_OK);
    free(text);
    assert_int_equal(text_of("all_reduce", NULL, NULL, &text), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "expected OP=ALGORITHM, got \"all_reduce\""));
    assert_int_equal(text_of(NULL, "all_reduce=none", NULL, &text), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "TT_ALGORITHMS"));
}

static void test_users_table(void **state) {
    char home[] = "/tmp/tuning-home-XXXXXX", path[128], *text = NULL;
    (void)state;
    assert_non_null(mkdtemp(home));
    setenv("XDG_CONFIG_HOME", home, 1);
    assert_int_equal(text_of("", NULL, NULL, &text), TT_OK); /* no such file: the built-in table */
    assert_string_equal(text, tt__tuning_default());
    free(text);
    assert_true(tt__tuning_users_path(path, sizeof path));
    assert_memory_equal(path, home, strlen(home));
    rmdir(home);
    unsetenv("XDG_CONFIG_HOME");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_line_that_fits),
        cmocka_unit_test(test_built_in_table),
        cmocka_unit_test(test_errors_name_line_and_cause),
        cmocka_unit_test(test_where_the_table_comes_from),
        cmocka_unit_test(test_users_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
