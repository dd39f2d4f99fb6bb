/* FileStore as a file: PyTorch's format, processes that die at the wrong moment, files of earlier jobs; and ranks that
 * meet in one. */
#include "support/patience.h"

#include "base/machine/clock.h"

#include <tutti/comm.h>
#include <tutti/store.h>

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 50, WORLD = 3, ROUNDS = 200 };

static char path[64];

static int begin(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_file_store.%d", (int)getpid());
    unlink(path);
    return 0;
}

static int end(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

static tt_store *open_store(int world_size, bool fresh) {
    tt_store *store;
    if (tt_file_store(&store, path, .world_size = world_size, .fresh = fresh, .timeout_ms = PATIENCE_MS))
        fail_msg("%s", tt_last_error());
    return store;
}

static void set(tt_store *store, const char *key, const char *value) {
    assert_int_equal(tt_store_set(store, key, value, strlen(value)), TT_OK);
}

static void holds(tt_store *store, const char *key, const char *expected) {
    tt_store_value value;
    if (tt_store_get(store, key, &value))
        fail_msg("%s", tt_last_error());
    assert_string_equal(value.data, expected);
    tt_store_value_free(&value);
}

static bool has(tt_store *store, const char *key) {
    bool there = false;
    assert_int_equal(tt_store_check(store, &key, 1, &there), TT_OK);
    return there;
}

static void fails(tt_status status, tt_status expected, const char *part) {
    assert_int_equal(status, expected);
    if (!strstr(tt_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tt_last_error(), part);
}

static bool exists(void) { return access(path, F_OK) == 0; }

static void write_bytes(const void *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

/* A file written as PyTorch 1.13 does: set k, add 5 and -7 to n, delete k, compare_set c; its user has left. */
static const char torch_file[] = "\2\0\0\0/k\2\0\0\0vv\2\0\0\0/n\1\0\0\0005\2\0\0\0/n\2\0\0\0-2"
                                 "\3\0\0\0-/k\0\0\0\0\2\0\0\0/c\1\0\0\0x\10\0\0\0cleanup/\1\0\0\0001";

static void the_format_is_pytorchs(void **state) {
    (void)state;
    tt_store *store = open_store(1, false);
    set(store, "k", "vv");
    assert_int_equal(tt_store_add(store, "n", 5, NULL), TT_OK);
    assert_int_equal(tt_store_add(store, "n", -7, NULL), TT_OK);
    assert_int_equal(tt_store_delete_key(store, "k", NULL), TT_OK);
    assert_int_equal(tt_store_compare_set(store, "c", NULL, 0, "x", 1, NULL), TT_OK);
    char bytes[256];
    int fd = open(path, O_RDONLY);
    ssize_t size = read(fd, bytes, sizeof bytes);
    close(fd);
    const size_t goodbye = 4 + 8 + 4 + 1;
    assert_int_equal(size, sizeof torch_file - 1 - goodbye);
    assert_memory_equal(bytes, torch_file, (size_t)size);
    tt_store_free(store);
    assert_false(exists());

    write_bytes(torch_file, sizeof torch_file - 1);
    store = open_store(2, false);
    assert_false(has(store, "k"));
    holds(store, "n", "-2");
    holds(store, "c", "x");
    int64_t keys;
    assert_int_equal(tt_store_num_keys(store, &keys), TT_OK);
    assert_int_equal(keys, 2);
    tt_store_free(store); /* the second of two */
    assert_false(exists());
}

static void the_last_user_removes_it(void **state) {
    (void)state;
    tt_store *a = open_store(2, false), *b = open_store(2, false), *guest = open_store(0, false);
    set(a, "k", "1");
    tt_store_free(a);
    assert_true(exists());
    holds(guest, "k", "1");
    tt_store_free(guest);
    assert_true(exists());
    tt_store_free(b);
    assert_false(exists());
    a = open_store(1, false);
    unlink(path); /* by somebody else: it is not made again to say goodbye */
    tt_store_free(a);
    assert_false(exists());
}

/* Removed and made anew while a user has it open: it follows. */
static void a_new_file_is_noticed(void **state) {
    (void)state;
    tt_store *store = open_store(0, false);
    set(store, "old", "1");
    unlink(path);
    tt_store *other = open_store(0, false);
    set(other, "new", "2");
    holds(store, "new", "2");
    assert_false(has(store, "old"));
    tt_store_free(store);
    tt_store_free(other);
}

static void a_torn_record_is_cut_off(void **state) {
    (void)state;
    tt_store *store = open_store(0, false);
    set(store, "k", "whole");
    for (size_t torn = 1; torn < 4 + 5 + 4 + 3; torn++) {
        static const char record[] = "\5\0\0\0/torn\3\0\0\0abc";
        write_bytes(record, torn);
        holds(store, "k", "whole");
        assert_false(has(store, "torn"));
        set(store, "next", "after it");
        tt_store *other = open_store(0, false);
        holds(other, "next", "after it");
        tt_store_free(other);
    }
    tt_store_free(store);
}

static void other_files_are_left_alone(void **state) {
    (void)state;
    static const char text[] = "Dear diary, today I wrote a file that is no store's.\n";
    write_bytes(text, sizeof text - 1);
    for (int fresh = 0; fresh < 2; fresh++) {
        tt_store *store;
        fails(tt_file_store(&store, path, .fresh = fresh), TT_ERR_PROTOCOL, path);
        assert_null(store);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, sizeof text - 1);
    }
    tt_store *store;
    fails(tt_file_store(&store, "/nonexistent/file"), TT_ERR_IO, "/nonexistent/file");
    fails(tt_file_store(&store, ""), TT_ERR_INVALID, "path");
    fails(tt_file_store(&store, path, .world_size = -1), TT_ERR_INVALID, "world_size");
}

/* What somebody may have put into /tmp for us to write into. */
static void links_are_not_followed(void **state) {
    (void)state;
    char target[sizeof path + 8];
    tt_store *store = NULL;
    snprintf(target, sizeof target, "%s.target", path);
    assert_int_equal(symlink(target, path), 0);
    tt_status opened = tt_file_store(&store, path, .timeout_ms = PATIENCE_MS);
    tt_status used = opened ? opened : tt_store_set(store, "k", "v", 1);
    bool written = access(target, F_OK) == 0;
    tt_store_free(store);
    unlink(target);
    assert_int_equal(used, TT_ERR_IO);
    assert_false(written);
}

/* Of a file that is somewhere else, too. */
static void further_names_are_not_written_to(void **state) {
    (void)state;
    char target[sizeof path + 8];
    tt_store *store = NULL;
    struct stat after;
    snprintf(target, sizeof target, "%s.target", path);
    FILE *file = fopen(target, "w");
    assert_true(file && fclose(file) == 0 && link(target, path) == 0);
    tt_status opened = tt_file_store(&store, path, .timeout_ms = PATIENCE_MS);
    tt_status used = opened ? opened : tt_store_set(store, "k", "v", 1);
    int seen = stat(target, &after);
    tt_store_free(store);
    unlink(target);
    assert_int_equal(used, TT_ERR_IO);
    assert_true(seen == 0 && after.st_size == 0);
}

static void a_held_lock_ends_in_a_timeout(void **state) {
    (void)state;
    tt_store *store = open_store(0, false);
    set(store, "k", "1");
    int fd = open(path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    tt_store_set_timeout_ms(store, SHORT_MS);
    tt_store_value value;
    fails(tt_store_get(store, "k", &value), TT_ERR_TIMEOUT, "holds the file's lock");
    close(fd);
    holds(store, "k", "1");
    tt_store_free(store);
}

/* ---- processes */

static pid_t start(int (*body)(int), int number) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm((unsigned)test_seconds() * 3 / 4);
        _exit(body(number));
    }
    return pid;
}

static void ends_well(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int count(int number) {
    tt_store *store = NULL;
    (void)number;
    int rc = tt_file_store(&store, path, .timeout_ms = PATIENCE_MS);
    for (int i = 0; i < ROUNDS && !rc; i++)
        rc = tt_store_add(store, "count", 1, NULL);
    tt_store_free(store);
    return rc;
}

static void processes_share_it(void **state) {
    (void)state;
    pid_t pids[WORLD];
    for (int i = 0; i < WORLD; i++)
        pids[i] = start(count, i);
    for (int i = 0; i < WORLD; i++)
        ends_well(pids[i]);
    tt_store *store = open_store(0, false);
    int64_t sum;
    assert_int_equal(tt_store_add(store, "count", 0, &sum), TT_OK);
    assert_int_equal(sum, WORLD * ROUNDS);
    tt_store_free(store);
}

static void an_earlier_jobs_keys_are_forgotten(void **state) {
    (void)state;
    tt_store *old = open_store(2, true);
    set(old, "k", "old");
    tt_store *peer = open_store(2, true); /* the same job: somebody is there */
    holds(peer, "k", "old");
    tt_store_free(peer);
    tt_store_free(old); /* together they would have removed it */
    assert_false(exists());

    old = open_store(2, true);
    set(old, "k", "old");
    tt_store_free(old); /* its peer never came */
    assert_true(exists());
    tt_store *fresh = open_store(2, true);
    assert_false(has(fresh, "k"));
    set(fresh, "k", "new");
    peer = open_store(2, true);
    holds(peer, "k", "new");
    tt_store_free(fresh);
    tt_store_free(peer);
    assert_false(exists());
}

static void url_of(char url[128]) { snprintf(url, 128, "file://%s", path); }

/* A rank of two jobs in a row, and what it would be told by the first that comes. */
static int rank_main(int rank) {
    char url[128];
    url_of(url);
    for (int job = 0; job < 2; job++) {
        tt_group *world = NULL;
        float sum = 1;
        int rc = tt_init_process_group(&world, .init_method = url, .rank = rank, .world_size = WORLD,
                                       .timeout_ms = PATIENCE_MS);
        if (!rc)
            rc = tt_all_reduce(world, &sum, 1, TT_F32, TT_SUM);
        if (rc)
            fprintf(stderr, "rank %d: %s\n", rank, tt_last_error());
        tt_destroy_process_group(world);
        if (rc || sum != WORLD)
            return 1;
    }
    return 0;
}

static void ranks_meet(void) {
    pid_t pids[WORLD];
    for (int r = 0; r < WORLD; r++)
        pids[r] = start(rank_main, r);
    for (int r = 0; r < WORLD; r++)
        ends_well(pids[r]);
    assert_false(exists());
}

/* Waits for the others, who never come. */
static int lonely_rank(int rank) {
    tt_group *world;
    char url[128];
    snprintf(url, sizeof url, "file://%s?rank=%d&world_size=%d", path, rank, WORLD);
    return tt_init_process_group(&world, .init_method = url, .timeout_ms = PATIENCE_MS) == TT_OK;
}

static void ranks_meet_in_a_file(void **state) {
    (void)state;
    ranks_meet();
}

static void a_killed_jobs_file_does_not_confuse_the_next(void **state) {
    (void)state;
    pid_t pid = start(lonely_rank, 1);
    struct stat info = {0};
    for (int64_t deadline = tt__deadline_ms(PATIENCE_MS); info.st_size < 100 && tt__left_ms(deadline);)
        stat(path, &info); /* until it has left its card */
    assert_true(info.st_size >= 100);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(exists());
    ranks_meet();
}

static void bad_addresses(void **state) {
    (void)state;
    tt_group *world;
    fails(tt_init_process_group(&world, .init_method = "file://relative", .world_size = 1), TT_ERR_INVALID,
          "from the root on");
    fails(tt_init_process_group(&world, .init_method = "file:///tmp/x"), TT_ERR_INVALID, "rank is missing");
    fails(tt_init_process_group(&world, .init_method = "file:///tmp/x?rank=0"), TT_ERR_INVALID, "world size");
    fails(tt_init_process_group(&world, .init_method = "file:///tmp/x?rank=2&world_size=2"), TT_ERR_INVALID, "rank");
    fails(tt_init_process_group(&world, .init_method = "file:///nonexistent/x", .rank = 0, .world_size = 2), TT_ERR_IO,
          "/nonexistent/x");
}

/* The kernel would end the process by a signal (ulimit -f). */
static void a_full_file_is_an_error(void **state) {
    (void)state;
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        static char large[3000];
        tt_store *store = open_store(0, true);
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4000, 4000});
        set(store, "small", "1");
        set(store, "small", "2");
        assert_int_equal(tt_store_set(store, "large", large, sizeof large), TT_OK);
        assert_int_equal(tt_store_set(store, "larger", large, sizeof large), TT_ERR_IO);
        assert_non_null(strstr(tt_last_error(), "File too large"));
        set(store, "small", "3"); /* nothing is left of what did not fit */
        holds(store, "small", "3");
        tt_store_free(store);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define ON_FILE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_FILE(the_format_is_pytorchs),
        ON_FILE(the_last_user_removes_it),
        ON_FILE(a_new_file_is_noticed),
        ON_FILE(a_torn_record_is_cut_off),
        ON_FILE(other_files_are_left_alone),
        ON_FILE(links_are_not_followed),
        ON_FILE(further_names_are_not_written_to),
        ON_FILE(a_full_file_is_an_error),
        ON_FILE(a_held_lock_ends_in_a_timeout),
        ON_FILE(processes_share_it),
        ON_FILE(an_earlier_jobs_keys_are_forgotten),
        ON_FILE(ranks_meet_in_a_file),
        ON_FILE(a_killed_jobs_file_does_not_confuse_the_next),
        ON_FILE(bad_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
