/* Does the fake of CUDA find what is in the wrong order? Each place of the device and of the back end nccl that makes
 * an event, waits for one, or waits for a stream is spoilt in turn (tests/support/fake_cuda/mutant.h): training and
 * collectives must give other numbers than before, or fail. */
#include "support/nccl.h"

#include <sys/mman.h>

enum { RANKS = 2, STEPS = 4, MOST = 16384, LARGE = 60000, PLACES = 64, LINE = 256, TRIES = 5 };

/* What a rank has computed. */
typedef struct outcome {
    bool done;
    int count;
    double number[MOST];
} outcome;

typedef struct scene {
    const char *backend;
    void (*play)(tt_group *group, int rank, outcome *out);
    outcome *out; /* of each rank, in memory that all share */
} scene;

static void note(outcome *out, tt_tensor *x) {
    TT_AUTO_SCOPE;
    const double *p = tt_tensor_data(tt_contiguous(tt_to(tt_to_device(x, TT_CPU), TT_F64)));
    CHECK(p && out->count + tt_tensor_numel(x) <= MOST);
    memcpy(out->number + out->count, p, (size_t)tt_tensor_numel(x) * sizeof *p);
    out->count += (int)tt_tensor_numel(x);
}

/* ---- what is played */

static tt_tensor *drawn_there(int rank, int step, int64_t rows, int64_t columns) {
    tt_manual_seed((uint64_t)(100 * step + rank + 1));
    return tt_to_device(tt_randn(TT_SHAPE(rows, columns), NULL), TT_CUDA(rank));
}

/* `spare` gets gradients in the first step on all ranks, in the second on one, later on none. */
static tt_tensor *loss_of(tt_module *net, tt_module *spare, int rank, int step) {
    tt_tensor *x = tt_module_forward(net, drawn_there(rank, step, 16, 40));
    x = step + rank < 2 ? tt_module_forward(spare, x) : x;
    return tt_cross_entropy(x, tt_to_device(tt_full(TT_SHAPE(16), TT_I64, 3), TT_CUDA(rank)));
}

/* Buckets are averaged on the devices, or (native, TT_CUDA_P2P=0) go to the host and back. */
static void train(tt_group *group, int rank, outcome *out) {
    tt_manual_seed(1);
    tt_module *net =
        tt_nn_sequential(tt_nn_linear(40, 60), tt_nn_tanh(), tt_nn_linear(60, 30), tt_nn_tanh(), tt_nn_linear(30, 5));
    tt_module *spare = tt_nn_linear(5, 5), *both = tt_nn_sequential(net, spare);
    CHECK_OK(tt_module_to_device(both, TT_CUDA(rank)));
    tt_module *ddp = tt_ddp(both, group, .bucket_cap_bytes = 4096);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(both), 0.1, .momentum = 0.9);
    CHECK(ddp && sgd);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *loss = loss_of(net, spare, rank, step);
        tt_optimizer_zero_grad(sgd);
        CHECK(loss && tt_backward(loss) == TT_OK && tt_optimizer_step(sgd) == TT_OK);
        note(out, loss);
    }
    for (int64_t i = 0; i < tt_module_parameters(both)->count; i++)
        note(out, tt_module_parameters(both)->tensors[i]);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(both);
}

/* Work whose result a call takes at once; another's memory is free again before it. */
static tt_tensor *busy(int rank, int step) {
    tt_tensor *x = drawn_there(rank, step, 200, LARGE / 200);
    for (int i = 0; i < 4; i++)
        x = tt_tanh(tt_add(x, tt_scale(x, 0.5)));
    return x;
}

static void reduce(tt_group *group, int rank, outcome *out) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_work *work;
        tt_tensor *x = tt_clone(busy(rank, step)), *y = busy(rank, step + 10);
        CHECK_OK(tt_tensor_all_reduce(group, x, TT_SUM, .work = &work));
        while (step % 2 && !tt_work_is_completed(work))
            ;
        CHECK_OK(tt_work_wait(work));
        tt_work_free(work);
        CHECK_OK(tt_tensor_all_reduce(group, y, TT_SUM));
        note(out, tt_sum(tt_mul(x, x), .dim = TT_DIMS(0)));
        note(out, tt_sum(tt_mul(y, y), .dim = TT_DIMS(0)));
    }
}

static void give_memory_back(tt_group *group, int rank, outcome *out) {
    (void)group;
    for (int step = 0; step < STEPS; step++) {
        {
            TT_AUTO_SCOPE;
            note(out, tt_sum(tt_mul(busy(rank, step), busy(rank, step))));
            busy(rank, step);
        }
        CHECK_OK(tt_device_empty_cache(TT_CUDA(rank)));
    }
}

/* A loader fills its buffers again and again, while copies from them are under way. */
static void load(tt_group *group, int rank, outcome *out) {
    enum { BATCHES = 12 };
    tt_tensor *sums[BATCHES] = {NULL};
    (void)group;
    TT_AUTO_SCOPE;
    tt_manual_seed(7);
    tt_dataset *rows = tt_tensor_dataset(tt_keep(tt_randn(TT_SHAPE(2 * BATCHES, LARGE / 4), NULL)), NULL);
    tt_loader *loader = tt_loader_new(rows, 2, tt_in_order(), .pin_memory = TT_CUDA(rank));
    tt_batch b;
    CHECK(loader);
    for (int n = 0; tt_loader_next(loader, &b) > 0; n++)
        sums[n] = tt_sum(tt_to_device(b.x, TT_CUDA(rank)), .dim = TT_DIMS(1));
    for (int n = 0; n < BATCHES; n++)
        note(out, sums[n]);
    tt_loader_free(loader);
    tt_dataset_free(rows);
}

static void play_native(tt_group *group, int rank, outcome *out) {
    train(group, rank, out);
    setenv("TT_CUDA_P2P", "0", 1);
    train(group, rank, out);
    unsetenv("TT_CUDA_P2P");
    reduce(group, rank, out);
    give_memory_back(group, rank, out);
    load(group, rank, out);
}

static void play_nccl(tt_group *group, int rank, outcome *out) {
    train(group, rank, out);
    reduce(group, rank, out);
}

/* ---- playing it */

static int run_scene(tt_store *store, int rank, int world, void *arg) {
    const scene *s = arg;
    outcome *out = &s->out[rank];
    tt_group *group = !strcmp(s->backend, "nccl") ? nccl_join(store, rank, world) : join_group(store, rank, world);
    alarm(60); /* who waits for an event that was never recorded */
    out->count = 0;
    s->play(group, rank, out);
    tt_destroy_process_group(group);
    out->done = true;
    return 0;
}

/* False: a rank failed. */
static bool play(scene s, outcome *out) {
    ranks ranks;
    s.out = out;
    memset(out, 0, RANKS * sizeof *out);
    start_ranks(&ranks, RANKS, run_scene, &s);
    int bad = 0;
    for (int r = 0; r < RANKS; r++)
        bad += end_of_rank(&ranks, r) != 0;
    tt_store_server_free(ranks.server);
    return !bad;
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Play it as it is, and list its places in order, each once. */
static int list_places(const scene *s, outcome *out, char places[PLACES][LINE]) {
    char path[] = "/tmp/tutti-places-XXXXXX";
    int file = mkstemp(path), count = 0, kept = 0;
    assert_true(file >= 0);
    setenv("FAKE_CUDA_PLACES", path, 1);
    setenv("FAKE_CUDA_MUTANT", "", 1);
    assert_true(play(*s, out));
    unsetenv("FAKE_CUDA_PLACES");
    FILE *list = fdopen(file, "r");
    unlink(path);
    while (count < PLACES && fgets(places[count], LINE, list))
        places[count][strcspn(places[count], "\n")] = '\0', count++;
    assert_true(count < PLACES);
    fclose(list);
    qsort(places, (size_t)count, LINE, by_text);
    for (int i = 0; i < count; i++)
        if (!i || strcmp(places[i], places[kept - 1]))
            memmove(places[kept++], places[i], LINE);
    return kept;
}

/* In how many tries is a mutant found? Streams are late by chance, so one may miss it. 0: in none. */
static int tries_until_found(const scene *s, const char *mutant, const outcome *right, outcome *out) {
    setenv("FAKE_CUDA_MUTANT", mutant, 1);
    for (int n = 1; n <= TRIES; n++)
        if (!play(*s, out) || memcmp(out, right, RANKS * sizeof *out) != 0)
            return n;
    return 0;
}

static outcome *shared_outcomes(void) {
    void *p = mmap(NULL, RANKS * sizeof(outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void expect_found(const scene *s, int least) {
    static char places[PLACES][LINE];
    outcome *right = shared_outcomes(), *out = shared_outcomes();
    int count = list_places(s, right, places), missed = 0;
    strcpy(places[count++], "order stream");
    setenv("FAKE_CUDA_MUTANT", "", 1);
    assert_true(play(*s, out) && !memcmp(out, right, RANKS * sizeof *out)); /* two runs have the same bits */
    for (int i = 0; i < count; i++) {
        int n = tries_until_found(s, places[i], right, out);
        printf("%s: %s: %s %d\n", s->backend, places[i], n ? "found, try" : "NOT FOUND", n);
        missed += !n;
    }
    setenv("FAKE_CUDA_MUTANT", "", 1);
    munmap(right, RANKS * sizeof *right);
    munmap(out, RANKS * sizeof *out);
    assert_true(count >= least);
    assert_int_equal(missed, 0);
}

static void the_device_waits_where_it_must(void **state) {
    (void)state;
    expect_found(&(scene){.backend = "native", .play = play_native}, 7);
}

static void nccl_waits_where_it_must(void **state) {
    (void)state;
    expect_found(&(scene){.backend = "nccl", .play = play_nccl}, 10);
}

int main(void) {
    nccl_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_waits_where_it_must),
        cmocka_unit_test(nccl_waits_where_it_must),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
