/* Sharded optimizers and modules with parameters on CUDA devices, on the fakes of CUDA and NCCL: over the native engine
 * the bits of a plain optimizer over tt_ddp() on the same device, over nccl its numbers. */
#include "support/cuda_ranks.h"
#include "support/nccl.h"

#include "base/build.h"
#include "dist/parallel/zero_models.h"

#include <math.h>

enum { STEPS = 6, MOST = 8000 };

typedef enum how { PLAIN, STAGE_1, STAGE_2, SPREAD, HOWS } how;

typedef struct run {
    how how;
    tt_dtype dtype;
    double clip; /* 0: not */
} run;

/* What a run leaves, of f32, and of state all entries. */
typedef struct result {
    float parameters[MOST], state[2 * MOST];
    int64_t count, state_count;
} result;

static tt_module *sharded_model(tt_dtype dtype, const tt_device *device) {
    tt_module *m = tt_nn_sequential(zero_branches(), tt_nn_tanh(), tt_nn_linear(ZERO_OUT, 9), tt_nn_tanh(),
                                    tt_nn_linear(9, ZERO_OUT));
    CHECK(m && !tt_module_to(m, dtype) && !tt_module_to_device(m, device));
    return m;
}

/* Ranks use other heads. */
static void sharded_pass(tt_module *m, int rank, int step, tt_dtype dtype, const tt_device *device) {
    TT_AUTO_SCOPE;
    zero_heads = (unsigned)(step * 7 + rank * 3 + step / 4) % 4;
    tt_manual_seed((uint64_t)(step * 8 + rank));
    tt_tensor *x = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_IN), NULL), *y = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_OUT), NULL);
    tt_tensor *out = tt_module_forward(m, tt_to(tt_to_device(x, device), dtype));
    CHECK_OK(tt_backward(tt_mse_loss(tt_to(out, TT_F32), tt_to_device(y, device))));
}

static int64_t keep(float *to, int64_t n, int64_t most, tt_tensor *x) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *near = tt_contiguous(tt_to(tt_to_device(x, TT_CPU), TT_F32));
    CHECK(near && n + tt_tensor_numel(near) <= most);
    memcpy(to + n, tt_tensor_f32(near), (size_t)tt_tensor_numel(near) * sizeof(float));
    return n + tt_tensor_numel(near);
}

static void keep_state(tt_optimizer *o, const run *r, result *out) {
    if (r->how != PLAIN)
        CHECK_OK(tt_zero_consolidate(o, TT_ALL_RANKS));
    const tt_named_tensors *state = tt_optimizer_state_dict(o);
    CHECK(state);
    for (int64_t i = 0; i < state->count; i++)
        out->state_count = keep(out->state, out->state_count, 2 * MOST, state->tensors[i]);
}

static tt_optimizer *optimizer_of(tt_module *ddp, const run *r) {
    tt_optimizer *o = r->how == PLAIN ? zero_make_adamw(tt_module_parameters(ddp), NULL)
                                      : tt_zero_optimizer(ddp, zero_make_adamw, NULL, .stage = (int)r->how);
    CHECK(o);
    return o;
}

static void clip(tt_module *ddp, tt_optimizer *o, const run *r) {
    CHECK_OK(r->how == PLAIN ? tt_clip_grad_norm_(tt_module_parameters(ddp), r->clip)
                             : tt_zero_clip_grad_norm_(o, r->clip));
}

static void train(tt_group *group, int rank, const tt_device *device, const run *r, result *out) {
    memset(out, 0, sizeof *out);
    tt_module *model = sharded_model(r->dtype, device);
    tt_module *ddp = r->how == SPREAD ? tt_fully_shard(model, group) : tt_ddp(model, group, .bucket_cap_bytes = 2048);
    CHECK(ddp);
    tt_optimizer *o = optimizer_of(ddp, r);
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(o);
        sharded_pass(ddp, rank, step, r->dtype, device);
        if (r->clip > 0)
            clip(ddp, o, r);
        CHECK_OK(tt_optimizer_step(o));
    }
    keep_state(o, r, out);
    if (r->how == SPREAD)
        CHECK_OK(tt_fully_shard_gather(ddp, TT_ALL_RANKS));
    const tt_named_tensors *all = tt_module_parameters(model);
    for (int64_t i = 0; i < all->count; i++) {
        CHECK(tt_tensor_device(all->tensors[i]) == device);
        out->count = keep(out->parameters, out->count, MOST, all->tensors[i]);
    }
    tt_optimizer_free(o);
    tt_module_free(ddp);
    tt_module_free(model);
    CHECK(cuda_pinned_left() == 0);
}

static void check_near(const result *a, const result *b, double most) {
    CHECK(a->count > 0 && a->count == b->count && a->state_count == b->state_count);
    for (int64_t i = 0; i < a->count; i++)
        CHECK(fabs((double)a->parameters[i] - (double)b->parameters[i]) <= most);
    for (int64_t i = 0; i < a->state_count; i++)
        CHECK(fabs((double)a->state[i] - (double)b->state[i]) <= most);
}

/* ---- over the native engine */

static void bits_of_a_plain_one(tt_group *group, int rank, void *user) {
    static result plain, sharded;
    const tt_device *own = TT_CUDA(rank % 2);
    const tt_dtype dtypes[] = {TT_F32, TT_BF16};
    (void)user;
    for (int d = 0; d < 2; d++) {
        train(group, rank, own, &(run){PLAIN, dtypes[d], 0}, &plain);
        for (how how = STAGE_1; how < HOWS; how++) {
            train(group, rank, own, &(run){how, dtypes[d], 0}, &sharded);
            CHECK(plain.count > 0 && !memcmp(&plain, &sharded, sizeof plain));
        }
    }
    train(group, rank, own, &(run){PLAIN, TT_F32, 0.1}, &plain);
    for (how how = STAGE_1; how < HOWS; how++) {
        train(group, rank, TT_CUDA(0), &(run){how, TT_F32, 0.1}, &sharded);
        check_near(&plain, &sharded, 1e-5);
    }
    train(group, rank, TT_CPU, &(run){PLAIN, TT_F32, 0.1}, &sharded);
    check_near(&plain, &sharded, 1e-3);
}

static void slices_on_devices_have_the_plain_ones_bits(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, bits_of_a_plain_one, NULL), 0);
    assert_int_equal(run_ranks(2, bits_of_a_plain_one, NULL), 0);
    assert_int_equal(run_ranks(3, bits_of_a_plain_one, NULL), 0);
}

/* ---- files, and whole parameters */

static void train_on(zero_side *s, int rank, const tt_device *device, int begin) {
    for (int step = begin; step < begin + 3; step++) {
        tt_optimizer_zero_grad(s->optimizer);
        sharded_pass(s->ddp, rank, step, TT_F32, device);
        CHECK_OK(tt_optimizer_step(s->optimizer));
    }
}

static zero_side sharded_side(tt_group *group, how how, const tt_device *device) {
    const run r = {how, TT_F32, 0};
    zero_side s = {.model = sharded_model(TT_F32, device)};
    s.ddp = how == SPREAD ? tt_fully_shard(s.model, group) : tt_ddp(s.model, group);
    CHECK(s.ddp);
    s.optimizer = optimizer_of(s.ddp, &r);
    return s;
}

/* What rank 0 alone has whole, doubled, is cut again; the state goes through files. */
static void stopped_and_gone_on(tt_group *group, int rank, const char *path) {
    const tt_device *device = TT_CUDA(rank);
    static float went_on[MOST], again[MOST];
    int64_t n = 0, m = 0;
    zero_side s = sharded_side(group, SPREAD, device), t = sharded_side(group, SPREAD, device);
    train_on(&s, rank, device, 0);
    CHECK_OK(tt_zero_save_sharded(s.optimizer, path));
    CHECK_OK(tt_fully_shard_gather(s.ddp, 0));
    CHECK_OK(tt_fully_shard_gather(t.ddp, TT_ALL_RANKS));
    for (int64_t i = 0; i < tt_module_parameters(s.model)->count; i++) {
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        tt_tensor *x = tt_module_parameters(s.model)->tensors[i], *y = tt_module_parameters(t.model)->tensors[i];
        tt_tensor *near = rank ? tt_zeros(tt_tensor_shape(y), TT_F32) : tt_contiguous(tt_to_device(x, TT_CPU));
        CHECK(rank == 0 || (!tt_to_device(x, TT_CPU) && tt_last_status() == TT_ERR_STATE)); /* spread */
        CHECK(rank || tt_scale_(x, 2));
        CHECK(n + tt_tensor_numel(near) <= MOST);
        if (strcmp(tt_get_backend(group), "nccl"))
            CHECK_OK(tt_tensor_broadcast(group, near, 0));
        else
            CHECK_OK(tt_tensor_broadcast(group, near = tt_to_device(near, device), 0));
        CHECK_OK(tt_copy(y, near));
        CHECK(tt_scale_(y, 2));
    }
    CHECK_OK(tt_fully_shard_scatter(s.ddp));
    CHECK_OK(tt_fully_shard_scatter(t.ddp));
    CHECK_OK(tt_zero_load_sharded(t.optimizer, path));
    train_on(&s, rank, device, 3);
    train_on(&t, rank, device, 3);
    CHECK_OK(tt_fully_shard_gather(s.ddp, TT_ALL_RANKS));
    CHECK_OK(tt_fully_shard_gather(t.ddp, TT_ALL_RANKS));
    for (int64_t i = 0; i < tt_module_parameters(s.model)->count; i++) {
        n = keep(went_on, n, MOST, tt_module_parameters(s.model)->tensors[i]);
        m = keep(again, m, MOST, tt_module_parameters(t.model)->tensors[i]);
    }
    CHECK(n > 0 && n == m && !memcmp(went_on, again, (size_t)n * sizeof *again));
    zero_end_side(&s);
    zero_end_side(&t);
}

static void stop_on_native(tt_group *group, int rank, void *user) { stopped_and_gone_on(group, rank, user); }

static int stop_on_nccl(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    stopped_and_gone_on(group, rank, arg);
    tt_destroy_process_group(group);
    return 0;
}

static void parameters_and_state_go_out_and_come_back(void **state) {
    (void)state;
    char folder[] = "/tmp/test_cuda_sharded_XXXXXX", path[64], command[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state.safetensors", folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    int bad = run_ranks(3, stop_on_native, path);
    if (!bad)
        with_ranks(2, stop_on_nccl, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(bad, 0);
}

/* ---- over nccl */

static int numbers_of_the_native_engine(tt_store *store, int rank, int world, void *arg) {
    static result near, far;
    (void)arg;
    both_engines both = both_join(store, rank, world);
    tt_group *native = both.native, *nccl = both.nccl;
    for (int i = 0; i < 6; i++) {
        const run r = {STAGE_1 + i % 3, TT_F32, i < 3 ? 0 : 0.1};
        train(native, rank, TT_CUDA(rank), &r, &near);
        train(nccl, rank, TT_CUDA(rank), &r, &far);
        check_near(&near, &far, 1e-4);
        near = far;
        CHECK_OK(tt_broadcast(native, &near, sizeof near, TT_U8, 0));
        CHECK(!memcmp(&near, &far, sizeof near));
    }
    tt_module *model = sharded_model(TT_F32, TT_CPU);
    CHECK(!tt_fully_shard(model, nccl) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("tt_fully_shard: the back end nccl takes no memory of cpu");
    tt_module_free(model);
    both_leave(&both);
    return 0;
}

static void over_nccl_they_have_the_numbers(void **state) {
    (void)state;
    with_ranks(1, numbers_of_the_native_engine, NULL);
    with_ranks(3, numbers_of_the_native_engine, NULL);
}

/* ---- memory, and errors */

/* Each has a MiB and more in 64 MiB of memory. */
static void shard_often(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *apart = tt_nn_sequential(tt_nn_linear(2, 2), tt_nn_linear(2, 2));
    CHECK_OK(tt_module_to_device(tt_module_child_at(apart, 1), TT_CUDA(0)));
    CHECK(!tt_fully_shard(apart, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("tt_fully_shard: parameter \"1.weight\" lies on cuda:0, and those before it on cpu; expected all");
    tt_module_free(apart);
    for (int i = 0; i < (TT__TSAN ? 8 : 80); i++) {
        tt_module *model = tt_nn_linear(512, 512);
        CHECK_OK(tt_module_to_device(model, TT_CUDA(0)));
        tt_module *ddp = i % 2 ? tt_ddp(model, group) : tt_fully_shard(model, group);
        CHECK(ddp && cuda_pinned_ranges() > 0);
        tt_optimizer *o = tt_zero_optimizer(ddp, zero_make_sgd, NULL, .stage = i % 2 ? 1 + i / 2 % 2 : 0);
        CHECK(o);
        if (i % 3 == 0)
            tt_module_free(ddp);
        tt_optimizer_free(o);
        if (i % 3)
            tt_module_free(ddp);
        CHECK(i % 2 == 0 || tt_tensor_device(tt_module_parameters(model)->tensors[0]) == TT_CUDA(0));
        tt_module_free(model);
        CHECK(cuda_pinned_left() == 0);
    }
    (void)rank;
}

static void nothing_is_left(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, shard_often, NULL), 0);
}

typedef struct failure {
    int call;
    how how;
} failure;

/* Call number .call of CUDA's fails on rank 1, and all that follow it. Nobody waits for it. */
static int fails_somewhere(tt_store *store, int rank, int world, void *arg) {
    const failure *f = arg;
    char number[16];
    snprintf(number, sizeof number, "%d", rank == 1 ? f->call : 0);
    setenv("FAKE_CUDA_FAIL", number, 1);
    tt_group *group = join_group(store, rank, world);
    tt_module *model = tt_nn_sequential(tt_nn_linear(3, 40), tt_nn_linear(40, 2)), *ddp = NULL;
    const tt_device *device = TT_CUDA(0);
    tt_status status = device ? tt_module_to_device(model, device) : tt_last_status();
    ddp = status ? NULL : f->how == SPREAD ? tt_fully_shard(model, group) : tt_ddp(model, group);
    tt_optimizer *o = ddp ? tt_zero_optimizer(ddp, zero_make_sgd, NULL, .stage = (int)f->how) : NULL;
    status = !o ? tt_last_status() : TT_OK;
    for (int step = 0; step < 2 && o && !status; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to_device(tt_ones(TT_SHAPE(2, 3), TT_F32), device);
        tt_tensor *loss = tt_sum(tt_module_forward(ddp, x));
        status = loss ? tt_backward(loss) : tt_last_status();
        status = status ? status : tt_optimizer_step(o);
    }
    CHECK(status != TT_ERR_TIMEOUT);
    CHECK(status || f->call > 40); /* there are as many calls */
    tt_optimizer_free(o);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void calls_of_cuda_fail(void **state) {
    (void)state;
    for (how how = STAGE_1; how < HOWS; how++)
        for (int n = 1; n < 250; n += TT__TSAN ? 60 : n < 100 ? 13 : 50)
            with_ranks(2, fails_somewhere, &(failure){n, how});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_on_devices_have_the_plain_ones_bits),
        cmocka_unit_test(parameters_and_state_go_out_and_come_back),
        cmocka_unit_test(over_nccl_they_have_the_numbers),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(calls_of_cuda_fail),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
