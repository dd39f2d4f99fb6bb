#include "tensor/device/parallel.h"

#include "base/build.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/fork.h"
#include "base/process/limits.h"
#include "base/process/threads.h"

#include <tutti/tensor.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The runtime that oneDNN was built with (libgomp), loaded when it is first needed and called by its own names: that
 * works with every compiler, there is no second runtime, and a process that computes on one thread never loads it. */
typedef struct openmp {
    void (*parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
    void (*set_num_threads)(int threads);
    int (*thread_num)(void);
    int (*num_threads)(void);
    bool loaded;
} openmp;

static openmp omp;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

#define OPENMP_LIBRARY "libgomp.so.1"

static void set_openmp_spins(void) {
    void *loaded = dlopen(OPENMP_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    if (loaded)
        dlclose(loaded);
    else if (!tt__openmp_waits_as_told())
        setenv(TT__OPENMP_SPINS_VARIABLE, TT__OPENMP_SPINS, 1);
}

void tt__openmp_wait_briefly(void) {
    static pthread_once_t spins_once = PTHREAD_ONCE_INIT;
    pthread_once(&spins_once, set_openmp_spins);
}

static void load_openmp(void) {
    tt__openmp_wait_briefly();
    void *library = dlopen(OPENMP_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return;
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"GOMP_parallel", &omp.parallel},
                     {"omp_set_num_threads", &omp.set_num_threads},
                     {"omp_get_thread_num", &omp.thread_num},
                     {"omp_get_num_threads", &omp.num_threads}};
    omp.loaded = true;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found); /* a function's address, as POSIX has it */
        omp.loaded = omp.loaded && found;
    }
}

/* Return the runtime's functions; NULL: there is none. */
static const openmp *openmp_get(void) {
    pthread_once(&load_once, load_openmp);
    return omp.loaded ? &omp : NULL;
}

static _Atomic int asked;       /* by tt_set_num_threads(); 0: none */
static _Thread_local int limit; /* of this thread alone; 0: none */
static _Atomic bool forked;     /* this process is a child of one that may have used OpenMP */

static void note_fork(void) { atomic_store_explicit(&forked, true, memory_order_relaxed); }

static _Atomic int tried; /* the most threads that could be started */

/* In a child of tt_spawn(): its function runs in a new thread, for which OpenMP starts new threads. */
static void compute_anew(void) {
    forked = false;
    asked = tried = 0;
}

static void register_watch(void) {
    pthread_atfork(NULL, NULL, note_fork);
    tt__on_new_process(compute_anew);
}

static void threads_watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_watch);
}

/* Read OMP_NUM_THREADS, "4" or "4,2" (the first number counts here); 0: not set. */
static int environment_threads(void) {
    const char *text = getenv("OMP_NUM_THREADS");
    long threads = text ? strtol(text, NULL, 10) : 0;
    return threads > 0 && threads <= 4096 ? (int)threads : 0;
}

static int default_threads(void) {
    static _Atomic int environment = -1, cores;
    int said = atomic_load_explicit(&environment, memory_order_acquire);
    if (said < 0) {
        said = environment_threads();
        atomic_store_explicit(&cores, tt__cores(), memory_order_relaxed);
        atomic_store_explicit(&environment, said, memory_order_release);
    }
    int share = tt__cpu_share();
    return said ? said : share ? share : atomic_load_explicit(&cores, memory_order_relaxed);
}

static int threads_of_all(void) {
    int n = atomic_load_explicit(&asked, memory_order_relaxed);
    return atomic_load_explicit(&forked, memory_order_relaxed) ? 1 : n ? n : default_threads();
}

int tt_get_num_threads(void) {
    int n = threads_of_all();
    return limit && limit < n ? limit : n;
}

int tt__parallel_limit(int threads) {
    int before = limit;
    limit = threads;
    return before;
}

tt_status tt_set_num_threads(int threads) {
    if (threads < 0)
        return tt__fail(TT_ERR_INVALID, "tt_set_num_threads: expected at least 1, or 0 for the default, got %d",
                        threads);
    if (threads > 1 && atomic_load_explicit(&forked, memory_order_relaxed))
        return tt__fail(TT_ERR_STATE, "tt_set_num_threads: this process was forked from one that may have used OpenMP, "
                                      "whose threads it does not have: it computes on one thread");
    threads_watch_forks();
    atomic_store_explicit(&asked, threads, memory_order_relaxed);
    return TT_OK;
}

/* The thread sanitizer can't see how this runtime's threads wait for each other. */
enum { ONE_THREAD = TT__TSAN };

/* Signals belong to the program's own threads; and in a product no handler may run (cpu/onednn/onednn.c). */
static void keep_signals_off(void) {
    static _Thread_local bool kept_off;
    sigset_t before;
    if (!kept_off && omp.thread_num() > 0)
        tt__signals_hold(&before);
    kept_off = true;
}

/* ---- can the runtime start its threads? It ends the process where it can't. */

enum { MOST_TRIED = 4096 };

static void *wait_for_the_others(void *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Start so many threads, all at once, and end them. */
static tt_status try_threads(int count) {
    static pthread_t thread[MOST_TRIED];
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    tt_status status = TT_OK;
    int n = 0;
    pthread_mutex_lock(&one_at_a_time);
    pthread_mutex_lock(&lock);
    while (n < count && n < MOST_TRIED && !status) {
        status = tt__thread_create(&thread[n], wait_for_the_others, &lock, "a thread that computes");
        n += !status;
    }
    pthread_mutex_unlock(&lock);
    while (n > 0)
        pthread_join(thread[--n], NULL);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

/* Return how many threads to compute on: `wanted`, or 1 where they can't be started. */
static int threads_to_have(int wanted) {
    if (wanted <= atomic_load_explicit(&tried, memory_order_relaxed) || wanted <= 1)
        return wanted;
    tt__saved_error saved;
    tt__error_save(&saved);
    if (try_threads(wanted - 1)) {
        tt__log(TT_LOG_WARNING, "computing on 1 thread, not on %d (OMP_NUM_THREADS, tt_set_num_threads()): %s", wanted,
                tt_last_error());
        wanted = 1;
        atomic_store_explicit(&asked, 1, memory_order_relaxed);
    } else {
        atomic_store_explicit(&tried, wanted, memory_order_relaxed);
    }
    tt__error_restore(&saved);
    return wanted;
}

static void prepare_thread(void *unused) {
    (void)unused;
    keep_signals_off();
}

void tt__parallel_prepare(void) {
    static _Thread_local int applied;
    threads_watch_forks();
    int threads = tt_get_num_threads();
    if (applied == threads || !openmp_get())
        return;
    threads = threads_to_have(threads);
    openmp_get()->set_num_threads(threads);
    if (threads > 1 && !ONE_THREAD)
        omp.parallel(prepare_thread, NULL, (unsigned)threads, 0);
    applied = threads;
}

typedef struct loop {
    int64_t n, block;
    void (*body)(void *user, int64_t begin, int64_t end);
    void *user;
} loop;

static int64_t block_count(const loop *l) { return (l->n + l->block - 1) / l->block; }

/* Run blocks first..last-1. */
static void run_blocks(const loop *l, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        l->body(l->user, i * l->block, (i + 1) * l->block < l->n ? (i + 1) * l->block : l->n);
}

/* Run one thread's share, of neighbouring blocks. */
static void run_share(void *data) {
    const loop *l = data;
    int64_t blocks = block_count(l), threads = omp.num_threads(), me = omp.thread_num();
    keep_signals_off();
    run_blocks(l, blocks * me / threads, blocks * (me + 1) / threads);
}

bool tt__parallel_inside(void) { return openmp_get() && omp.num_threads() > 1; }

void tt__parallel_for(int64_t n, int64_t block, void (*body)(void *user, int64_t begin, int64_t end), void *user) {
    loop l = {n, block, body, user};
    int64_t blocks = block_count(&l), threads = blocks > 1 && !ONE_THREAD ? tt_get_num_threads() : 1;
    if (threads > blocks)
        threads = blocks;
    if (threads <= 1 || !openmp_get()) {
        run_blocks(&l, 0, blocks);
        return;
    }
    tt__parallel_prepare();
    if (threads > tt_get_num_threads())
        threads = tt_get_num_threads();
    omp.parallel(run_share, &l, (unsigned)threads, 0);
}
