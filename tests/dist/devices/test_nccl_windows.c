/* DDP's buckets in windows of NCCL's, on the fakes of CUDA and NCCL: registered on all ranks or on none, each given
 * back once; and everything works where there can be none. */
#include "support/nccl.h"

#include "reducer/reducer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

enum { STEPS = 4, SHORT_MS = 4000 };

typedef struct numbers {
    unsigned long windows, made, calls, memories, cut;
    size_t taken;
} numbers;

static unsigned long ask_fake(void *fake, const char *name) {
    unsigned long (*count)(void);
    *(void **)&count = dlsym(fake, name);
    CHECK(count);
    return count();
}

static numbers ask_fakes(int device) {
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*taken)(int);
    CHECK(nccl && cuda);
    *(void **)&taken = dlsym(cuda, "fake_memory_taken");
    const numbers n = {ask_fake(nccl, "fake_nccl_windows"),      ask_fake(nccl, "fake_nccl_windows_made"),
                       ask_fake(nccl, "fake_nccl_window_calls"), ask_fake(nccl, "fake_nccl_memories"),
                       ask_fake(nccl, "fake_nccl_cut"),          taken(device)};
    dlclose(nccl);
    dlclose(cuda);
    return n;
}

/* ---- a training ---- */

static tt_tensor *last_first(tt_module *self, tt_tensor *x) {
    x = tt_relu(tt_module_forward(tt_module_child(self, "second"), x));
    return tt_module_forward(tt_module_child(self, "first"), x);
}

/* Gradients come in another order than expected, so that buckets are formed anew after the first step. */
static tt_module *make_model(int rank) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "LastFirst", .forward = last_first);
    tt_manual_seed((uint64_t)rank + 1);
    tt_module *model = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(model, "first", tt_nn_linear(20, 4)));
    CHECK_OK(tt_module_add_module(model, "second", tt_nn_linear(6, 20)));
    CHECK(tt_module_to_device(model, TT_CUDA(rank)) == TT_OK);
    return model;
}

static tt_module *wrap(tt_module *model, tt_group *group) { return tt_ddp(model, group, .bucket_cap_bytes = 256); }

static tt_status pass(tt_module *ddp, int rank, int step) {
    TT_AUTO_SCOPE;
    tt_manual_seed((uint64_t)(100 * step + rank));
    tt_tensor *x = tt_to_device(tt_randn(TT_SHAPE(5, 6), NULL), TT_CUDA(rank));
    tt_tensor *y = tt_module_forward(ddp, x);
    return y ? tt_backward(tt_mean(tt_mul(y, y))) : tt_last_status();
}

static double train(tt_module *model, tt_module *ddp, int rank) {
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1);
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(pass(ddp, rank, step));
        CHECK_OK(tt_optimizer_step(sgd));
        tt_optimizer_zero_grad(sgd);
    }
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    for (int64_t i = 0; i < tt_module_parameters(model)->count; i++) {
        double part;
        CHECK_OK(tt_item(tt_sum(tt_abs(tt_module_parameters(model)->tensors[i])), &part));
        sum += part;
    }
    tt_optimizer_free(sgd);
    return sum;
}

/* What the training comes to over the native engine, which has no windows. */
static double train_natively(tt_store *store, int rank, int world) {
    tt_store *place = NULL;
    CHECK_OK(tt_prefix_store(&place, "native", store));
    tt_group *group = join_group(place, rank, world);
    tt_module *model = make_model(rank), *ddp = wrap(model, group);
    CHECK(ddp);
    const double sum = train(model, ddp, rank);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    tt_store_free(place);
    return sum;
}

static bool is_near(double a, double b) { return a - b < 1e-4 && b - a < 1e-4; }

/* ---- registered ---- */

static int registers(tt_store *store, int rank, int world, void *arg) {
    const double expected = train_natively(store, rank, world);
    tt_group *group = nccl_join(store, rank, world);
    (void)arg;
    for (int round = 0; round < 3; round++) {
        tt_module *model = make_model(rank);
        const numbers before = ask_fakes(rank);
        tt_module *ddp = wrap(model, group);
        CHECK(ddp);
        const unsigned long buckets = (unsigned long)tt_reducer_bucket_count(tt_ddp_reducer(ddp));
        numbers now = ask_fakes(rank);
        CHECK(buckets > 1 && now.windows == buckets && now.made == before.made + buckets);
        CHECK(round == 0 || now.taken == before.taken + buckets * (2 << 20));
        CHECK(is_near(train(model, ddp, rank), expected));
        now = ask_fakes(rank);
        CHECK(now.calls == before.calls + STEPS * buckets);
        CHECK(now.made > before.made + buckets);
        CHECK(now.windows == (unsigned long)tt_reducer_bucket_count(tt_ddp_reducer(ddp)));
        tt_module_free(ddp);
        now = ask_fakes(rank);
        CHECK(!now.windows && (round == 0 || now.taken == before.taken));
        tt_module_free(model);
    }
    tt_destroy_process_group(group);
    CHECK(!ask_fakes(rank).cut); /* nobody has asked after the last averages, and still it leaves in order */
    return 0;
}

/* The group is destroyed first; then in a group of a group's ranks. */
static int frees_in_any_order(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world), *sub = NULL;
    (void)arg;
    CHECK_OK(tt_group_split(&sub, group, 0, 0));
    tt_module *model = make_model(rank), *other = make_model(rank);
    tt_module *ddp = wrap(model, group), *ddp_of_sub = wrap(other, sub);
    CHECK(ddp && ddp_of_sub && ask_fakes(rank).windows);
    tt_destroy_process_group(group);
    CHECK(train(other, ddp_of_sub, rank) > 0);
    tt_module_free(ddp);
    tt_module_free(ddp_of_sub);
    CHECK(!ask_fakes(rank).windows && !ask_fakes(rank).memories);
    tt_destroy_process_group(sub);
    tt_module_free(model);
    tt_module_free(other);
    return 0;
}

static void buckets_are_registered(void **state) {
    (void)state;
    with_ranks(2, registers, NULL);
    with_ranks(3, registers, NULL);
    with_ranks(2, frees_in_any_order, NULL);
}

/* ---- not registered ---- */

typedef struct absence {
    const char *variable, *value, *said;
    int64_t timeout_ms;
} absence;

static int lines;

static void count_lines(tt_log_level level, const char *line, void *user) {
    lines += level == TT_LOG_INFO && strstr(line, "no memory is registered with NCCL") && strstr(line, user);
}

/* Ranks train all the same, and are told once; other calls and groups go on. */
static int does_without(tt_store *store, int rank, int world, void *arg) {
    const absence *a = arg;
    tt_group *group = NULL, *sub = NULL;
    setenv("TT_LOG", "info", 1);
    const double expected = train_natively(store, rank, world);
    setenv(a->variable, a->value, 1);
    tt_set_log(count_lines, (void *)(uintptr_t)a->said);
    CHECK_OK(nccl_try(&group, store, rank, world, a->timeout_ms ? a->timeout_ms : PATIENCE_MS));
    for (int round = 0; round < 2; round++) {
        tt_module *model = make_model(rank), *ddp = wrap(model, group);
        CHECK(ddp);
        CHECK(!ask_fakes(rank).windows || a->timeout_ms); /* those that are lost end with the communicator */
        CHECK(is_near(train(model, ddp, rank), expected));
        CHECK(!ask_fakes(rank).calls && lines == 1);
        tt_module_free(ddp);
        tt_module_free(model);
    }
    CHECK_OK(tt_group_split(&sub, group, 0, 0));
    CHECK_OK(tt_barrier(sub));
    tt_destroy_process_group(sub);
    tt_destroy_process_group(group);
    CHECK(!ask_fakes(rank).windows && !ask_fakes(rank).memories);
    return 0;
}

/* The first wrapper has windows, and registering for the second fails: they go with their communicator. */
static int fails_later(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    CHECK_OK(nccl_try(&group, store, rank, world, SHORT_MS));
    tt_module *one = make_model(rank), *other = make_model(rank), *first = wrap(one, group);
    CHECK(first && ask_fakes(rank).windows);
    setenv("FAKE_NCCL_FAIL", arg, 1);
    tt_module *second = wrap(other, group);
    CHECK(second);
    const unsigned long calls = ask_fakes(rank).calls;
    CHECK(is_near(train(one, first, rank), train(other, second, rank)) && ask_fakes(rank).calls == calls);
    tt_module_free(first);
    tt_module_free(second);
    tt_module_free(one);
    tt_module_free(other);
    tt_destroy_process_group(group);
    CHECK(!ask_fakes(rank).windows && !ask_fakes(rank).memories);
    return 0;
}

static void training_does_without(void **state) {
    static absence all[] = {
        {"FAKE_NCCL_VERSION", "22600", "a NCCL before 2.27", 0},
        {"FAKE_NCCL_WINDOWS", "0", "it takes none here", 0},
        {"FAKE_NCCL_FAIL", "MemAlloc@1", "a rank has no memory for it", 0},
        {"FAKE_NCCL_FAIL", "CommWindowRegister@0", "that failed on a rank", SHORT_MS},
        {"FAKE_NCCL_FAIL", "CommWindowRegister@1", "that failed on a rank", SHORT_MS},
        {"FAKE_NCCL_HANG", "CommWindowRegister@1", "that failed on a rank", SHORT_MS},
        {"FAKE_NCCL_ASYNC", "CommWindowRegister@1", "that failed on a rank", SHORT_MS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        with_ranks(3, does_without, &all[i]);
    with_ranks(2, fails_later, (void *)(uintptr_t) "CommWindowRegister@1");
}

/* ---- errors ---- */

/* A window that NCCL doesn't give back ends with the communicator, and then its memory. */
static int kept_to_the_end(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_module *model = make_model(rank), *ddp = wrap(model, group);
    CHECK(ddp);
    train(model, ddp, rank);
    setenv("FAKE_NCCL_FAIL", arg, 1);
    tt_module_free(ddp);
    CHECK(!ask_fakes(rank).windows == (rank == 1));
    tt_module_free(model);
    tt_destroy_process_group(group);
    CHECK(!ask_fakes(rank).windows && !ask_fakes(rank).memories);
    return 0;
}

static void what_is_not_given_back_ends(void **state) {
    (void)state;
    with_ranks(2, kept_to_the_end, (void *)(uintptr_t) "CommWindowDeregister@0");
}

static void *die_soon(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    raise(SIGKILL);
    return arg;
}

static int killed(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_module *model = make_model(rank);
    pthread_t thread;
    (void)arg;
    setenv("FAKE_NCCL_HANG", "CommWindowRegister@1", 1);
    CHECK(rank != 1 || !pthread_create(&thread, NULL, die_soon, NULL));
    CHECK(!wrap(model, group) && tt_last_status() == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT(") ended, while "); /* NCCL joins it, or, where this rank is late, ranks meet before that */
    tt_module_free(model);
    tt_destroy_process_group(group);
    CHECK(!ask_fakes(rank).windows && !ask_fakes(rank).memories);
    return 0;
}

static void a_rank_that_dies_is_named(void **state) {
    (void)state;
    ranks ranks;
    start_ranks(&ranks, 3, killed, NULL);
    for (int r = 0; r < 3; r++)
        assert_int_equal(end_of_rank(&ranks, r), r == 1 ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
}

/* Rank 1's call number *arg of CUDA fails. Whatever that ends, no window is left. */
static int fails_once(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    if (rank == 1)
        setenv("FAKE_CUDA_FAIL_ONE", arg, 1);
    tt_status status = nccl_try(&group, store, rank, world, PATIENCE_MS);
    if (status)
        return 0;
    tt_module *model = tt_nn_linear(6, 20), *ddp = NULL;
    status = TT_CUDA(rank) ? tt_module_to_device(model, TT_CUDA(rank)) : tt_last_status();
    if (!status && !(ddp = wrap(model, group)))
        status = tt_last_status();
    for (int step = 0; step < 3 && !status; step++)
        status = pass(ddp, rank, step);
    CHECK(status != TT_ERR_TIMEOUT);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    CHECK(!ask_fakes(rank).windows && !ask_fakes(rank).memories);
    return 0;
}

static void a_failing_call_leaves_no_window(void **state) {
    char n[8];
    (void)state;
    for (int i = 1; i <= 60; i++) {
        snprintf(n, sizeof n, "%d", i);
        with_ranks(2, fails_once, n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_registered),          cmocka_unit_test(training_does_without),
        cmocka_unit_test(what_is_not_given_back_ends),     cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(a_failing_call_leaves_no_window),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
