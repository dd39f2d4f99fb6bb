/* For tests of tt_spawn(): functions that processes run, and memory that they share with the test. */
#ifndef TESTS_UNIT_SPAWN_CASES_H
#define TESTS_UNIT_SPAWN_CASES_H

#include "support/process.h"
#include "support/ranks.h"

#include <tutti/spawn.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { MANY = 64 };

/* What processes write and the parent reads. */
typedef struct seen {
    _Atomic int runs, done;
    _Atomic int number[MANY];
    char text[4096];
} seen;

static seen *shared;

static inline int make_shared(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static inline int clear_shared(void **state) {
    (void)state;
    memset(shared, 0, sizeof *shared);
    tt_clear_error();
    return 0;
}

static inline int count_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Nothing of ours is left that could be waited for. */
static inline void assert_no_child(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

#define assert_error(call, expected, words)      \
    do {                                         \
        assert_int_equal(call, expected);        \
        assert_contains(tt_last_error(), words); \
    } while (0)

static inline int note_rank(int rank, void *arg) {
    const int *from_parent = arg;
    CHECK(rank >= 0 && rank < MANY);
    atomic_store(&shared->number[rank], from_parent[0] + rank);
    atomic_fetch_add(&shared->runs, 1);
    return 0;
}

static inline int wait_for_word(int rank, void *arg) {
    (void)arg;
    atomic_fetch_add(&shared->runs, 1);
    while (!atomic_load(&shared->number[rank]))
        usleep(1000);
    return 0;
}

/* ---- ways to fail */

typedef struct end {
    int rank;
    int (*act)(void);
    _Bool others_stay;
} end;

static inline int fail_as_told(int rank, void *arg) {
    const end *e = arg;
    crash_as_programs_do();
    if (rank == e->rank)
        return e->act();
    while (e->others_stay)
        pause();
    return 0;
}

static inline int returns_3(void) { return 3; }
static inline int returns_256(void) { return 256; }
static inline int returns_negative(void) { return -7; }
static inline int exits_5(void) { exit(5); }
static inline int exits_at_once(void) { _exit(6); }
static inline int crashes(void) {
    signal(SIGSEGV, SIG_DFL);
    return raise(SIGSEGV);
}
static inline int is_killed(void) { return raise(SIGKILL); }
static inline int aborts(void) { abort(); }
static inline int has_error(void) { return tt_fail(TT_ERR_IO, "can't open %s", "/data") ? 1 : 0; }
static inline int exits_with_error(void) {
    tt_ignore(tt_fail(TT_ERR_IO, "can't open %s", "/data"));
    exit(4);
}
static inline int reports(void) {
    tt_ignore(tt_fail(TT_ERR_FORMAT, "no pictures in it"));
    fclose(stderr);
    tt_report();
    _exit(9);
}
static inline int leaves_thread(void) { pthread_exit(NULL); }

#define TEST(name) cmocka_unit_test_setup(name, clear_shared)

#endif
