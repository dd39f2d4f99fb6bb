/* Processes of tt_spawn() compute on several threads, though OpenMP has run in the parent, and divide its CPUs. A
 * forked child whose own thread called libgomp would wait for its parent's threads forever. */
#include "support/ranks.h"

#include "base/build.h"
#include "base/process/limits.h"

#include <tutti/spawn.h>
#include <tutti/tutti.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

enum { N = 384, OWN_LOOPS = 1 << 20 };

/* A number that all elements of a product, a convolution and a loop of our own have part in. */
typedef struct results {
    double product, convolution, loop;
} results;

static double sum_of(tt_tensor *x) {
    double sum = 0;
    CHECK(x && !tt_item(tt_sum(tt_mul(x, x)), &sum));
    return sum;
}

static results compute(void) {
    TT_AUTO_SCOPE;
    tt_generator *g = tt_generator_new(1);
    tt_tensor *a = tt_randn(TT_SHAPE(N, N), g), *b = tt_randn(TT_SHAPE(N, N), g);
    tt_tensor *image = tt_randn(TT_SHAPE(8, 16, 48, 48), g), *weight = tt_randn(TT_SHAPE(32, 16, 3, 3), g);
    results r = {.product = sum_of(tt_matmul(a, b)),
                 .convolution = sum_of(tt_conv2d(image, weight)),
                 .loop = sum_of(tt_exp(tt_randn(TT_SHAPE(OWN_LOOPS), g)))};
    tt_generator_free(g);
    return r;
}

static bool is_close(double a, double b) { return fabs(a - b) <= 1e-4 * fabs(b); }

static void compare(const results *expected) {
    results r = compute();
    CHECK(is_close(r.product, expected->product));
    CHECK(is_close(r.convolution, expected->convolution));
    CHECK(is_close(r.loop, expected->loop));
}

static int count_tasks(void) {
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (const struct dirent *task; (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    closedir(tasks);
    return n;
}

static int openmp_threads(void) {
    void *runtime = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(runtime);
    int (*max_threads)(void) = (int (*)(void))dlsym(runtime, "omp_get_max_threads");
    return max_threads();
}

typedef struct expected {
    results results;
    int threads; /* that a process has without asking */
} expected;

static int compute_in_process(int rank, void *arg) {
    const expected *e = arg;
    (void)rank;
    alarm(120);
    CHECK(openmp_threads() == e->threads);
    CHECK(tt_get_num_threads() == e->threads);
    for (int threads = 3; threads >= 0; threads -= 3) {
        CHECK_OK(tt_set_num_threads(threads));
        CHECK(tt_get_num_threads() == (threads ? threads : e->threads));
        compare(&e->results);
        CHECK(count_tasks() >= 1 + tt_get_num_threads()); /* one watches */
    }
    return 0;
}

static int share_of(int nprocs) {
    int share = tt__cores() / nprocs;
    return share < 1 ? 1 : share;
}

static void spawned_processes_compute(void **state) {
    (void)state;
    expected e;
    assert_int_equal(tt_set_num_threads(4), TT_OK);
    e.results = compute();
    assert_true(count_tasks() > 1);
    for (int nprocs = 1; nprocs <= 3; nprocs++) {
        e.threads = share_of(nprocs);
        if (tt_spawn(compute_in_process, &e, nprocs))
            fail_msg("%s", tt_last_error());
    }
}

static void *spawn_in_thread(void *arg) {
    const expected *e = arg;
    expected mine = *e; /* on this thread's stack, which no thread of the process may get */
    compute();
    return (void *)(intptr_t)tt_spawn(compute_in_process, &mine, 2);
}

static void from_a_thread_that_computed(void **state) {
    (void)state;
    pthread_t thread;
    void *status;
    assert_int_equal(tt_set_num_threads(4), TT_OK);
    expected e = {.results = compute(), .threads = share_of(2)};
    assert_int_equal(pthread_create(&thread, NULL, spawn_in_thread, &e), 0);
    pthread_join(thread, &status);
    if (status)
        fail_msg("in the thread: status %d", (int)(intptr_t)status);
}

static int joined(int rank, void *arg) {
    tt_group *world;
    CHECK_OK(tt_init_process_group(&world, .timeout_ms = PATIENCE_MS));
    tt_module *model = tt_nn_linear(64, 64), *ddp = tt_ddp(model, world);
    CHECK(ddp);
    CHECK(rank == tt_get_rank(world));
    compare(arg);
    {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, tt_ones(TT_SHAPE(256, 64), TT_F32)))));
    }
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return 0;
}

static void ranks_compute(void **state) {
    (void)state;
    results r = compute();
    if (tt_spawn(joined, &r, 2, .rendezvous = true))
        fail_msg("%s", tt_last_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spawned_processes_compute),
        cmocka_unit_test(from_a_thread_that_computed),
        cmocka_unit_test(ranks_compute),
    };
    if (TT__TSAN) {
        puts("skipped: the thread sanitizer keeps no account of threads of a forked child, and we compute on one "
             "under it");
        return 77;
    }
    unsetenv("OMP_NUM_THREADS"); /* libgomp is loaded by the first product */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
