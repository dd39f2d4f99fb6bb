/* Ranks for tests: forked processes that meet through a store which the test itself serves. No launcher, no fixed port,
 * nothing left behind: a rank that hangs is ended by its alarm, one whose test is gone by the kernel. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include "support/patience.h"

#include <tutti/comm.h>
#include <tutti/store.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* In a rank: end it unsuccessfully, saying why. */
#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: pid %d: failed: %s (last error: %s)\n", __FILE__, __LINE__, (int)getpid(), \
                    #condition, tt_last_error());                                                              \
            _exit(1);                                                                                          \
        }                                                                                                      \
    } while (0)

#define CHECK_OK(call) CHECK((call) == TT_OK)
#define CHECK_TEXT(text) CHECK(strstr(tt_last_error(), text))

/* Wait until all ranks have come here, by the store, so that nothing of the group is under way any more. Once in the
 * life of a store. */
static inline void wait_for_all(tt_store *store, int world) {
    const char *all = "all have come";
    int64_t count;
    CHECK_OK(tt_store_add(store, "ranks that have come", 1, &count));
    if (count == world)
        CHECK_OK(tt_store_set(store, all, "", 0));
    CHECK_OK(tt_store_wait(store, &all, 1, PATIENCE_MS));
}

/* Let this process be a rank by its environment. The ranks meet at `port`; 0: where `store` is served. */
static inline void be_rank_by_environment(tt_store *store, int rank, int world, int port) {
    char rank_text[12], world_text[12], port_text[12];
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(world_text, sizeof world_text, "%d", world);
    snprintf(port_text, sizeof port_text, "%d", port ? port : tt_store_port(store));
    CHECK(!setenv("RANK", rank_text, 1) && !setenv("WORLD_SIZE", world_text, 1));
    CHECK(!setenv("MASTER_ADDR", "127.0.0.1", 1) && !setenv("MASTER_PORT", port_text, 1));
    CHECK(!(port ? unsetenv("TORCHELASTIC_USE_AGENT_STORE") : setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1)));
}

/* Is a world of this size tried? Under a sanitizer three sizes are: 1, 3 (no power of two) and 4. Others take ten times
 * as long there, and show nothing new. */
static inline bool world_is_tried(int world) {
    return !getenv("TT_SANITIZED") || world == 1 || world == 3 || world == 4;
}

typedef struct ranks {
    int world;
    pid_t pid[64];
    tt_store_server *server;
    int to_child[64];
} ranks;

/* A rank's program. `store` is connected; the rank ends with the result. */
typedef int (*rank_body)(tt_store *store, int rank, int world, void *arg);

/* Limit threads, as the launcher does by OMP_NUM_THREADS, which is read before main(): threads of several ranks that
 * spin for each other's CPUs take ten times the time. */
static inline void one_openmp_thread(void) {
    void (*set_num_threads)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_num_threads)
        set_num_threads(1);
}

/* Give crash signals their default effect, unless a sanitizer is to report them: after cmocka's handlers a rank that
 * crashes would go on as a second test program. */
static inline void crash_as_programs_do(void) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes && !getenv("TT_SANITIZED"); i++)
        signal(crashes[i], SIG_DFL);
}

/* Heed SIGINT, SIGQUIT and SIGHUP, which programs ignore that a shell runs in the background or under nohup. */
static inline void heed_signals(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

static inline void run_rank(rank_body body, int rank, int world, void *arg, int from_parent) {
    int port = 0;
    tt_store *store = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)test_seconds() * 3 / 4);
    one_openmp_thread();
    crash_as_programs_do();
    heed_signals();
    CHECK(read(from_parent, &port, sizeof port) == sizeof port);
    close(from_parent);
    CHECK_OK(tt_tcp_store(&store, "127.0.0.1", port, .timeout_ms = PATIENCE_MS));
    int code = body(store, rank, world, arg);
    tt_store_free(store);
    exit(code);
}

/* The children are forked before the server's thread exists. */
static inline void start_ranks(ranks *ranks, int world, rank_body body, void *arg) {
    *ranks = (struct ranks){.world = world};
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        ranks->pid[r] = fork();
        assert_true(ranks->pid[r] >= 0);
        if (!ranks->pid[r]) {
            /* Without a terminal, the kernel sends SIGHUP to a whole process group when it loses its last outside
             * parent while one of its processes is stopped. Tests run side by side in one group, and stop ranks: so
             * those have groups of their own. */
            setpgid(0, 0);
            close(ends[1]);
            run_rank(body, r, world, arg, ends[0]);
        }
        setpgid(ranks->pid[r], ranks->pid[r]); /* before it can get a signal, as an orphaned group ignores SIGTTIN */
        close(ends[0]);
        ranks->to_child[r] = ends[1];
    }
    assert_int_equal(tt_store_server_new(&ranks->server, NULL, 0), TT_OK);
    int port = tt_store_server_port(ranks->server);
    for (int r = 0; r < world; r++) {
        assert_int_equal(write(ranks->to_child[r], &port, sizeof port), sizeof port);
        close(ranks->to_child[r]);
    }
}

/* Wait for the end of rank r; its exit code, or 128 + signal. */
static inline int end_of_rank(ranks *ranks, int r) {
    int status = 0;
    assert_int_equal(waitpid(ranks->pid[r], &status, 0), ranks->pid[r]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The number of ranks that did not end well. */
static inline int count_bad_ranks(ranks *ranks) {
    int bad = 0;
    for (int r = 0; r < ranks->world; r++) {
        int end = end_of_rank(ranks, r);
        if (end)
            fprintf(stderr, "rank %d of %d ended with %d\n", r, ranks->world, end);
        bad += end != 0;
    }
    tt_store_server_free(ranks->server);
    return bad;
}

static inline void end_ranks(ranks *ranks) { assert_int_equal(count_bad_ranks(ranks), 0); }

static inline void with_ranks(int world, rank_body body, void *arg) {
    ranks ranks;
    start_ranks(&ranks, world, body, arg);
    end_ranks(&ranks);
}

/* The usual beginning of a body. */
static inline tt_group *join_group(tt_store *store, int rank, int world) {
    tt_group *group = NULL;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    return group;
}

/* Ranks that only need their group. */
typedef void (*group_fn)(tt_group *group, int rank, void *user);

typedef struct group_body {
    group_fn fn;
    void *user;
} group_body;

static inline int run_in_group(tt_store *store, int rank, int world, void *arg) {
    const group_body *body = arg;
    tt_group *group = join_group(store, rank, world);
    body->fn(group, rank, body->user);
    tt_destroy_process_group(group);
    return 0;
}

/* Run fn as `world` ranks. Returns the number of those that did not end well. */
static inline int run_ranks(int world, group_fn fn, void *user) {
    ranks ranks;
    start_ranks(&ranks, world, run_in_group, &(group_body){fn, user});
    return count_bad_ranks(&ranks);
}

#endif
