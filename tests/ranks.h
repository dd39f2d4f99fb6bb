/* Run a function as several ranks: one forked process each, in one group. Each checks with CHECK(), which ends its process; the parent expects that
 * all end well. No launcher, no fixed port, nothing left behind: a rank that hangs is ended by its alarm. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tutti/comm.h>
#include <unistd.h>

enum { RANKS_MAX = 16, RANKS_DEADLINE_S = 60 };

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: CHECK(%s) failed; last error: %s\n", __FILE__, __LINE__, #condition, \
                    tt_last_error());                                                                    \
            _exit(1);                                                                                    \
        }                                                                                                \
    } while (0)

typedef void (*ranks_fn)(tt_group *group, int rank, void *user);

/* What the launcher sees to by OMP_NUM_THREADS, which is read before main(): threads of several ranks that spin for each other's CPUs take
 * ten times the time. */
static inline void ranks_one_thread(void) {
    void (*set_num_threads)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_num_threads)
        set_num_threads(1);
}

static inline void ranks_child(int port, int world, int rank, ranks_fn fn, void *user) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(RANKS_DEADLINE_S);
    ranks_one_thread();
    tt_store *store = NULL;
    tt_group *group = NULL;
    CHECK(tt_tcp_store(&store, "127.0.0.1", port) == TT_OK);
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world) == TT_OK);
    fn(group, rank, user);
    tt_destroy_process_group(group);
    tt_store_free(store);
    _exit(0);
}

/* Returns 0 if every rank ended well, else the number that didn't. */
static inline int run_ranks(int world, ranks_fn fn, void *user) {
    tt_store_server *server = NULL;
    pid_t child[RANKS_MAX];
    int failed = 0;
    if (world > RANKS_MAX || tt_store_server_start(&server, NULL, 0))
        return -1;
    fflush(NULL);
    for (int r = 0; r < world; r++)
        if ((child[r] = fork()) == 0)
            ranks_child(tt_store_server_port(server), world, r, fn, user);
    for (int r = 0; r < world; r++) {
        int status = -1;
        if (child[r] < 0 || waitpid(child[r], &status, 0) != child[r] || status != 0) {
            fprintf(stderr, "rank %d of %d ended with wait status %#x\n", r, world, (unsigned)status);
            failed++;
        }
    }
    tt_store_server_free(server);
    return failed;
}

#endif
