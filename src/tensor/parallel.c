#include "tensor/parallel.h"

#include "base/cores.h"
#include "base/error.h"

#include <tutti/tensor.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The runtime that Debian's oneDNN was built with, called by its own names: every compiler can, and there is no second one. */
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

static _Atomic int asked;   /* by tt_set_num_threads(); 0: none */
static _Atomic bool forked; /* this process is a child of one that may have used OpenMP */

static void note_fork(void) { atomic_store_explicit(&forked, true, memory_order_relaxed); }

static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

static bool environment_says(void) {
    const char *text = getenv("OMP_NUM_THREADS");
    return text && *text;
}

/* OpenMP's own default: the environment's, or one for each CPU. */
static int default_threads(void) {
    static _Atomic int by_environment = -1, of_process;
    int said = atomic_load_explicit(&by_environment, memory_order_relaxed);
    if (said < 0) {
        said = environment_says();
        atomic_store_explicit(&of_process, said ? omp_get_max_threads() : tt__cores(), memory_order_relaxed);
        atomic_store_explicit(&by_environment, said, memory_order_relaxed);
    }
    int threads = atomic_load_explicit(&of_process, memory_order_relaxed);
    int share = said ? threads : threads / tt__host_ranks();
    return share < 1 ? 1 : share;
}

int tt_get_num_threads(void) {
    int n = atomic_load_explicit(&asked, memory_order_relaxed);
    return atomic_load_explicit(&forked, memory_order_relaxed) ? 1 : n ? n : default_threads();
}

tt_status tt_set_num_threads(int threads) {
    if (threads < 0)
        return tt__fail(TT_ERR_INVALID, "tt_set_num_threads: expected at least 1, or 0 for the default, got %d", threads);
    if (threads > 1 && atomic_load_explicit(&forked, memory_order_relaxed))
        return tt__fail(TT_ERR_STATE, "tt_set_num_threads: this process was forked from one that may have used OpenMP, "
                                      "whose threads it does not have: it computes on one thread");
    atomic_store_explicit(&asked, threads, memory_order_relaxed);
    return TT_OK;
}

void tt__parallel_prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local int told;
    pthread_once(&once, watch_forks);
    int threads = tt_get_num_threads();
    if (told == threads)
        return;
    omp_set_num_threads(threads);
    told = threads;
}

typedef struct loop {
    int64_t n, block;
    void (*body)(void *user, int64_t begin, int64_t end);
    void *user;
} loop;

static int64_t block_count(const loop *l) { return (l->n + l->block - 1) / l->block; }

/* Blocks first..last-1. */
static void run_blocks(const loop *l, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        l->body(l->user, i * l->block, (i + 1) * l->block < l->n ? (i + 1) * l->block : l->n);
}

/* One thread's share, of neighbours. */
static void run_share(void *data) {
    const loop *l = data;
    int64_t blocks = block_count(l), threads = omp_get_num_threads(), me = omp_get_thread_num();
    run_blocks(l, blocks * me / threads, blocks * (me + 1) / threads);
}

/* The thread sanitizer can't see how this runtime's threads wait for each other. */
#if defined(__SANITIZE_THREAD__)
#define ONE_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ONE_THREAD 1
#endif
#endif
#ifndef ONE_THREAD
#define ONE_THREAD 0
#endif

void tt__parallel_for(int64_t n, int64_t block, void (*body)(void *user, int64_t begin, int64_t end), void *user) {
    loop l = {n, block, body, user};
    int64_t blocks = block_count(&l), threads = blocks > 1 && !ONE_THREAD ? tt_get_num_threads() : 1;
    if (threads > blocks)
        threads = blocks;
    if (threads <= 1) {
        run_blocks(&l, 0, blocks);
        return;
    }
    tt__parallel_prepare();
    GOMP_parallel(run_share, &l, (unsigned)threads, 0);
}
