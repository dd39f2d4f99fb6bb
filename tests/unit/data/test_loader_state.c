/* States of loaders: a run that goes on from one gives what the run would have given that never stopped, also for
 * another number of ranks; weighted draws, and shares in which each example comes once. */
#include "base/hash.h"
#include "unit/alloc_fail.h"
#include "unit/data/data_cases.h"
#include "unit/expect.h"
#include "unit/vectors.h"

#include <tutti/tutti.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- weighted draws ---- */

static void check_weighted(const json_t *c) {
    const json_t *list = json_object_get(c, "weights"), *epochs = json_object_get(c, "epochs");
    double weights[64];
    const int64_t size = (int64_t)json_array_size(list), n = (int64_t)vectors_member(c, "n");
    for (int64_t i = 0; i < size; i++)
        weights[i] = vectors_number(list, (size_t)i);
    uint64_t seed = (uint64_t)vectors_member(c, "seed");
    tt_manual_seed(seed);
    tt_generator *own = json_is_true(json_object_get(c, "own")) ? tt_generator_new(seed + 100) : NULL;
    tt_sampler *s = tt_weighted_random_sampler(weights, size, n, .generator = own,
                                               .no_replacement = !json_is_true(json_object_get(c, "replacement")));
    tt_dataset *d = numbered(size);
    tt_loader *loader = tt_loader_new(d, n, s);
    tt_batch b;
    for (size_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_int_equal(b.size, n);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(b.indices[i], vectors_number(json_array_get(epochs, epoch), (size_t)i));
        assert_int_equal(tt_loader_next(loader, &b), 0);
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
    tt_sampler_free(s);
    tt_generator_free(own);
}

static void weighted_draws_are_torchs(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-weighted.json"), *cases = json_object_get(vectors, "cases");
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_weighted(json_array_get(cases, i));
    json_decref(vectors);
}

static void weights_are_checked(void **state) {
    (void)state;
    tt_clear_error();
    assert_null(tt_weighted_random_sampler(NULL, 3, 1));
    expect_error(TT_ERR_INVALID, "a weight for each example, got NULL");
    assert_null(tt_weighted_random_sampler(((double[]){1, -1}), 2, 1));
    expect_error(TT_ERR_INVALID, "got -1 in position 1");
    assert_null(tt_weighted_random_sampler(((double[]){0, 0}), 2, 1));
    expect_error(TT_ERR_INVALID, "a finite sum above 0");
    assert_null(tt_weighted_random_sampler(((double[]){1, 0}), 2, 2, .no_replacement = true));
    expect_error(TT_ERR_INVALID, "expected at most 1");
    assert_null(tt_weighted_random_sampler(((double[]){1, 0}), 2, 0));
    expect_error(TT_ERR_INVALID, "num_samples: expected at least 1");
    assert_null(tt_distributed_sampler(10, 2, 0, .exact = true, .drop_last = true));
    expect_error(TT_ERR_INVALID, "got both");
}

/* ---- each example once ---- */

static void exact_shares_have_each_example_once(void **state) {
    (void)state;
    for (int64_t n = 1; n < 20; n++)
        for (int world = 1; world <= 7; world++)
            for (int shuffled = 0; shuffled < 2; shuffled++) {
                int seen[20] = {0};
                for (int rank = 0; rank < world; rank++) {
                    tt_sampler *s = tt_distributed_sampler(n, world, rank, .exact = true, .no_shuffle = !shuffled);
                    int64_t size = tt_sampler_size(s);
                    assert_true(size == n / world || size == n / world + 1);
                    for (int64_t i = 0; i < size; i++)
                        seen[tt_sampler_indices(s)[i]]++;
                    tt_sampler_free(s);
                }
                for (int64_t i = 0; i < n; i++)
                    assert_int_equal(seen[i], 1);
            }
}

/* ---- resuming ---- */

enum { N = 47, BATCH = 4, EPOCHS = 3 };

/* What a run sees: the transformed inputs of each step, and which examples they are of. */
typedef struct seen_step {
    int64_t size, indices[BATCH];
    float x[BATCH];
} seen_step;

static tt_status add_noise(void *user, const void *from, void *to, tt_draws *draws) {
    (void)user;
    *(float *)to = ((const float *)from)[0] + (float)tt_draws_uniform(draws, 0, 1);
    return TT_OK;
}

typedef struct run {
    tt_dataset *base, *data;
    tt_generator *own;
    tt_sampler *sampler;
    tt_loader *loader;
} run;

enum { IN_ORDER, SHUFFLED, OWN_GENERATOR, WEIGHTED, DISTRIBUTED, SUBSET, CUT, BUCKETS, KINDS };

/* Batches of 1 to 4 examples, of one remainder by 3 each, in a random order of their own. */
static tt_status fill_buckets(void *user, int64_t epoch, int64_t *indices, int64_t n, int64_t *sizes, int64_t batches) {
    int64_t order[N], at = 0, count = 0;
    (void)user;
    tt_generator *g = tt_generator_new((uint64_t)epoch + 40);
    tt_randperm(order, N, g);
    for (int64_t kind = 0; kind < 3; kind++) {
        int64_t most = 1 + (int64_t)(tt_generator_random(g) % 4);
        for (int64_t i = 0; i < N; i++) {
            if (order[i] % 3 != kind)
                continue;
            count += sizes[count] == most;
            assert_true(at < n && count < batches);
            indices[at++] = order[i];
            sizes[count]++;
        }
        count += sizes[count] > 0;
    }
    tt_generator_free(g);
    return TT_OK;
}

static run run_new(int kind, int workers) {
    static double weights[N];
    static int64_t chosen[N / 2];
    run r = {.base = numbered(N), .own = tt_generator_new(17)};
    for (int64_t i = 0; i < N; i++)
        weights[i] = (double)(i % 5), chosen[i / 2 < N / 2 ? i / 2 : 0] = i;
    r.data = tt_dataset_transform(
        r.base, tt_transform_from(tt_spec(TT_F32, TT_SHAPE(2)), add_noise, .to = tt_spec(TT_F32, TT_SCALAR)));
    r.sampler = kind == IN_ORDER        ? tt_in_order()
                : kind == SHUFFLED      ? tt_shuffled()
                : kind == OWN_GENERATOR ? tt_random_sampler(N, .generator = r.own)
                : kind == WEIGHTED      ? tt_weighted_random_sampler(weights, N, 33, .generator = r.own)
                : kind == DISTRIBUTED   ? tt_distributed_sampler(N, 2, 1, .seed = 3)
                : kind == CUT           ? tt_batch_sampler(tt_shuffled(), BATCH, .drop_last = true)
                : kind == BUCKETS       ? tt_batch_sampler_from(N, N, BATCH, fill_buckets)
                                        : tt_subset_random_sampler(N, chosen, N / 2);
    r.loader = kind == CUT || kind == BUCKETS
                   ? tt_loader_new(r.data, 0, NULL, .batch_sampler = r.sampler, .workers = workers)
                   : tt_loader_new(r.data, BATCH, r.sampler, .workers = workers, .drop_last = kind == SUBSET);
    assert_non_null(r.loader);
    return r;
}

static void run_free(run *r) {
    tt_loader_free(r->loader);
    tt_sampler_free(r->sampler);
    tt_dataset_free(r->data);
    tt_dataset_free(r->base);
    tt_generator_free(r->own);
}

/* Make steps from number `begin` to before `end`, of all that EPOCHS have; returns the number after the last one. */
static int run_steps(run *r, int kind, int begin, int end, seen_step *seen) {
    int64_t batches = tt_loader_batches(r->loader);
    int step = begin;
    while (step < end && step < EPOCHS * batches) {
        tt_batch b;
        if (kind == DISTRIBUTED)
            tt_sampler_set_epoch(r->sampler, step / batches);
        int64_t left = tt_loader_batches_left(r->loader);
        int more = tt_loader_next(r->loader, &b);
        assert_true(more >= 0);
        if (!more) {
            assert_int_equal(left, 0);
            continue;
        }
        if (kind != BUCKETS) /* which has fewer batches than it announces */
            assert_int_equal(left, batches - step % batches);
        seen[step].size = b.size;
        memcpy(seen[step].indices, b.indices, (size_t)b.size * sizeof *b.indices);
        memcpy(seen[step++].x, tt_tensor_f32(b.x), (size_t)b.size * sizeof(float));
    }
    return step;
}

static void a_resumed_run_sees_what_the_whole_one_saw(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int stop = 0; stop < 2 * 12; stop += 1 + kind % 2) {
            static seen_step want[192], got[192];
            memset(want, 0, sizeof want), memset(got, 0, sizeof got);
            tt_manual_seed(5);
            run whole = run_new(kind, 0);
            int steps = run_steps(&whole, kind, 0, 192, want);
            run_free(&whole);

            tt_manual_seed(5);
            run first = run_new(kind, stop % 3), second = run_new(kind, (stop + 1) % 3);
            int at = run_steps(&first, kind, 0, stop, got);
            const tt_named_tensors *saved = tt_loader_state_dict(first.loader);
            assert_non_null(saved);
            assert_int_equal(tt_loader_load_state_dict(second.loader, saved), TT_OK);
            run_free(&first);
            assert_int_equal(run_steps(&second, kind, at, 192, got), steps);
            run_free(&second);
            assert_memory_equal(want, got, sizeof want);
        }
}

/* ---- another number of ranks ---- */

/* Visit up to `steps` batches on each of `world` ranks, which begin with `state`; count visits. The state after. */
static tt_loader *visit(int world, int rank, const tt_named_tensors *state, int64_t n, bool exact, int steps,
                        int *seen) {
    tt_dataset *d = numbered(n);
    tt_sampler *s = tt_distributed_sampler(n, world, rank, .seed = 9, .exact = exact);
    tt_loader *loader = tt_loader_new(d, 2, s, .workers = rank % 2);
    tt_batch b;
    tt_sampler_set_epoch(s, 4);
    if (state)
        assert_int_equal(tt_loader_load_state_dict(loader, state), TT_OK);
    for (int i = 0; i < steps && tt_loader_next(loader, &b) == 1; i++)
        for (int64_t k = 0; k < b.size; k++)
            seen[b.indices[k]]++;
    tt_sampler_free(s);
    tt_dataset_free(d);
    return loader;
}

static void visit_all(const int worlds[3], int64_t n, bool exact) {
    int seen[100] = {0}, most = 0;
    tt_loader *last = NULL;
    for (int part = 0; part < 3; part++) {
        const tt_named_tensors *state = last ? tt_loader_state_dict(last) : NULL;
        tt_loader *next = NULL;
        for (int rank = 0; rank < worlds[part]; rank++) {
            tt_loader_free(next);
            next = visit(worlds[part], rank, state, n, exact, part < 2 ? 2 : 1000, seen);
        }
        tt_loader_free(last);
        last = next;
    }
    tt_loader_free(last);
    for (int64_t i = 0; i < n; i++) {
        assert_true(seen[i] >= 1 && seen[i] <= 2);
        most += seen[i] - 1;
    }
    assert_true(exact ? most == 0 : most < worlds[2]); /* so that all ranks of the last world get the same number */
}

static void the_rest_of_an_epoch_is_dealt_among_other_ranks(void **state) {
    (void)state;
    const int worlds[][3] = {{2, 3, 1}, {4, 2, 3}, {1, 5, 2}, {3, 3, 3}, {5, 1, 4}};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int64_t n = 60; n < 72; n++) {
            visit_all(worlds[i], n, false);
            visit_all(worlds[i], n, true);
        }
}

/* ---- states that do not fit ---- */

static void states_are_checked(void **state) {
    (void)state;
    tt_dataset *d = numbered(10), *other = numbered(11);
    tt_loader *a = tt_loader_new(d, 3, tt_shuffled()), *b = tt_loader_new(other, 3, tt_shuffled());
    tt_batch batch;
    assert_int_equal(tt_loader_next(a, &batch), 1);
    const tt_named_tensors *saved = tt_loader_state_dict(a);
    tt_clear_error();
    assert_int_equal(tt_loader_load_state_dict(b, saved), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "of a data set of 10 examples, but this one has 11");
    int64_t *epochs = tt_tensor_data(tt_named_tensors_find(saved, "epochs")), were = *epochs;
    *epochs = INT64_MAX;
    assert_int_equal(tt_loader_load_state_dict(a, saved), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "this is no loader's state");
    *epochs = were;
    assert_int_equal(tt_loader_load_state_dict(NULL, saved), TT_ERR_INVALID);
    assert_int_equal(tt_loader_load_state_dict(a, NULL), TT_ERR_INVALID);
    tt_clear_error();
    assert_null(tt_loader_state_dict(NULL));
    for (int64_t i = 0; i < saved->count; i++) { /* each entry missing, each wrong */
        TT_AUTO_SCOPE;
        const char *names[16];
        tt_tensor *tensors[16];
        int64_t n = 0;
        for (int64_t k = 0; k < saved->count; k++)
            if (k != i)
                names[n] = saved->names[k], tensors[n++] = saved->tensors[k];
        assert_int_equal(tt_loader_load_state_dict(a, TT_NAMED_TENSORS(n, names, tensors)), TT_ERR_NOT_FOUND);
        names[n] = saved->names[i], tensors[n] = tt_ones(TT_SHAPE(3), TT_F32);
        assert_int_equal(tt_loader_load_state_dict(a, TT_NAMED_TENSORS(n + 1, names, tensors)), TT_ERR_DTYPE);
        tensors[n] = tt_full(tt_tensor_shape(saved->tensors[i]), TT_I64, -7);
        assert_int_equal(tt_loader_load_state_dict(a, TT_NAMED_TENSORS(n + 1, names, tensors)) == TT_OK,
                         !strcmp(names[n], "epoch"));
    }
    tt_clear_error();
    tt_loader_free(a);
    tt_loader_free(b);
    tt_dataset_free(d);
    tt_dataset_free(other);
}

static void a_generator_goes_on_where_it_stood(void **state) {
    (void)state;
    for (int drawn = 0; drawn < 1300; drawn += 61) {
        tt_generator *g = tt_generator_new(3), *other = tt_generator_new(4);
        TT_AUTO_SCOPE;
        for (int i = 0; i < drawn; i++)
            tt_generator_random(g);
        tt_tensor *few = tt_empty(TT_SHAPE(3), TT_F32);
        assert_int_equal(tt_normal_(few, 0, 1, g), TT_OK); /* an odd number: one value waits */
        tt_tensor *stand = tt_generator_get_state(g);
        assert_int_equal(tt_generator_set_state(other, stand), TT_OK);
        tt_tensor *x = tt_randn(TT_SHAPE(5), g), *y = tt_randn(TT_SHAPE(5), other);
        assert_memory_equal(tt_tensor_data(x), tt_tensor_data(y), 5 * sizeof(float));
        assert_int_equal(tt_generator_random64(g), tt_generator_random64(other));
        tt_tensor_i64(stand)[3] = -1;
        assert_int_equal(tt_generator_set_state(other, stand), TT_ERR_INVALID);
        assert_int_equal(tt_generator_set_state(other, few), TT_ERR_DTYPE);
        tt_generator_free(other);
        tt_generator_free(g);
    }
}

/* ---- a whole training, in processes of its own ---- */

enum { STEPS = 30 };

/* Train from the checkpoint, if `from` is above 0, to step `to`; save there; write the parameters' sum of bits. */
static int train(const char *path, int from, int to, uint64_t *hash) {
    tt_manual_seed(from ? 99 : 1); /* a resumed process begins with something else */
    tt_dataset *digits = tt_digits(100, 2);
    tt_dataset *data = tt_dataset_transform(
        digits, tt_compose(tt_random_affine(-10, 10, .bilinear = true), tt_random_crop(20, 20), tt_to_tensor()),
        .seed = 5);
    tt_loader *loader = tt_loader_new(data, 8, tt_shuffled(), .workers = 2);
    tt_module *model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(400, 16), tt_nn_relu(), tt_nn_dropout(0.5),
                                        tt_nn_linear(16, 10));
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 0.01);
    tt_lr_scheduler *decay = tt_exponential_lr(adam, 0.95);
    int rc = 1, step = from;
    if (from && tt_checkpoint_load(path, model, adam, NULL, .scheduler = decay, .loader = loader,
                                   .generator = tt_default_generator()))
        goto out;
    while (step < to) {
        tt_batch b;
        int more = tt_loader_next(loader, &b);
        if (more < 0)
            goto out;
        if (!more)
            continue;
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(adam);
        if (tt_backward(tt_cross_entropy(tt_module_forward(model, b.x), b.y)) || tt_optimizer_step(adam) ||
            tt_lr_scheduler_step(decay))
            goto out;
        step++;
    }
    if (tt_checkpoint_save(path, model, adam, NULL, .scheduler = decay, .loader = loader,
                           .generator = tt_default_generator()))
        goto out;
    const tt_named_tensors *all = tt_module_parameters(model);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(all->tensors[i]); k++) {
            uint32_t bits;
            memcpy(&bits, tt_tensor_f32(all->tensors[i]) + k, sizeof bits);
            *hash = tt__fnv_number(*hash, bits);
        }
    rc = 0;
out:
    if (rc)
        tt_report();
    tt_lr_scheduler_free(decay);
    tt_optimizer_free(adam);
    tt_module_free(model);
    tt_loader_free(loader);
    tt_dataset_free(data);
    tt_dataset_free(digits);
    return rc;
}

/* In a new process. */
static uint64_t train_apart(const char *path, int from, int to, uint64_t *shared) {
    int status = 1;
    *shared = 1;
    pid_t child = fork();
    if (!child)
        _exit(train(path, from, to, shared));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return *shared;
}

static void a_training_that_is_resumed_gives_the_same_bits(void **state) {
    (void)state;
    char path[] = "/tmp/tt_loader_state_XXXXXX";
    uint64_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && shared != MAP_FAILED);
    close(fd);
    uint64_t want = train_apart(path, 0, STEPS, shared);
    const int stops[] = {1, 7, 12, 13, 14, 25, 26};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        assert_true(train_apart(path, 0, stops[i], shared) != want);
        assert_true(train_apart(path, stops[i], STEPS, shared) == want);
    }
    munmap(shared, sizeof *shared);
    unlink(path);
}

static tt_status save_and_load(void *user) {
    tt_dataset *d = user;
    tt_loader *loader = tt_loader_new(d, 2, tt_shuffled());
    tt_batch b;
    bool ok = loader && tt_loader_next(loader, &b) == 1;
    const tt_named_tensors *saved = ok ? tt_loader_state_dict(loader) : NULL;
    tt_status status = saved ? tt_loader_load_state_dict(loader, saved) : tt_last_status();
    tt_loader_free(loader);
    return status;
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    tt_dataset *d = numbered(8);
    assert_true(alloc_fail_each(save_and_load, d, ALLOC_ENDS) > 10);
    tt_dataset_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weighted_draws_are_torchs),
        cmocka_unit_test(weights_are_checked),
        cmocka_unit_test(exact_shares_have_each_example_once),
        cmocka_unit_test(a_training_that_is_resumed_gives_the_same_bits), /* first: it forks, before threads are used */
        cmocka_unit_test(a_resumed_run_sees_what_the_whole_one_saw),
        cmocka_unit_test(the_rest_of_an_epoch_is_dealt_among_other_ranks),
        cmocka_unit_test(states_are_checked),
        cmocka_unit_test(a_generator_goes_on_where_it_stood),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
