/* DDP whose buckets lie on the devices, over the back end nccl on the fakes of CUDA and NCCL: against the same training
 * over the native engine, which averages on the host. */
#include "support/leaves_out.h"
#include "support/nccl.h"

#include "base/build.h"
#include "base/machine/clock.h"
#include "reducer/reducer.h"

#include <math.h>

enum { STEPS = TT__TSAN ? 8 : 20, BATCH = 6, SIDE = 8, CLASSES = 4, MOST = 5000 };

typedef struct run {
    bool conv;
    tt_dtype dtype;
    bool clips, accumulates, in_backward;
} run;

typedef struct result {
    double parameters[MOST];
    int64_t count;
} result;

static tt_module *make_model(const run *r, int rank) {
    tt_manual_seed((uint64_t)rank + 1);
    tt_module *model = r->conv ? tt_nn_sequential(tt_nn_conv2d(1, 4, 3, .padding = 1), tt_nn_batch_norm2d(4),
                                                  tt_nn_relu(), tt_nn_max_pool2d(2), tt_nn_conv2d(4, 8, 3),
                                                  tt_nn_relu(), tt_nn_flatten(), tt_nn_linear(8 * 2 * 2, CLASSES))
                               : tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(SIDE * SIDE, 24), tt_nn_relu(),
                                                  tt_nn_linear(24, 16), tt_nn_relu(), tt_nn_linear(16, CLASSES));
    CHECK(model && tt_module_to_device(model, TT_CUDA(rank)) == TT_OK);
    CHECK(r->dtype == TT_F32 || tt_module_to(model, r->dtype) == TT_OK);
    return model;
}

static tt_tensor *loss_of(tt_module *model, const run *r, int rank, int step) {
    tt_manual_seed((uint64_t)(1000 * step + rank));
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, 1, SIDE, SIDE), NULL), *y = tt_zeros(TT_SHAPE(BATCH), TT_I64);
    for (int i = 0; i < BATCH; i++)
        tt_tensor_i64(y)[i] = (i * 3 + step + rank) % CLASSES;
    x = tt_to(tt_to_device(x, TT_CUDA(rank)), r->dtype);
    return tt_cross_entropy(tt_module_forward(model, x), tt_to_device(y, TT_CUDA(rank)));
}

static void keep_parameters(const tt_named_tensors *list, result *out) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < list->count; i++) {
        tt_tensor *near = tt_contiguous(tt_to(tt_to_device(list->tensors[i], TT_CPU), TT_F32));
        for (int64_t k = 0; k < tt_tensor_numel(near); k++)
            out->parameters[out->count++] = tt_tensor_f32(near)[k];
    }
}

/* Over nccl the host runs ahead of the device. (The native engine's copies are garbage until they have come, on the
 * fake, so that there the host waits.) */
static tt_status pass(tt_group *group, tt_tensor *loss) {
    double value;
    tt_status status = loss ? tt_backward(loss) : tt_last_status();
    return status || strcmp(tt_get_backend(group), "native") ? status : tt_item(loss, &value);
}

static void train_step(tt_group *group, tt_module *ddp, tt_optimizer *sgd, const run *r, int rank, int step) {
    TT_AUTO_SCOPE;
    if (r->accumulates) {
        CHECK_OK(tt_ddp_set_sync(ddp, false));
        CHECK_OK(pass(group, loss_of(ddp, r, rank, step + 100)));
        CHECK_OK(tt_ddp_set_sync(ddp, true));
    }
    CHECK_OK(pass(group, loss_of(ddp, r, rank, step)));
    if (r->clips)
        CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(ddp), 0.5));
    if (r->in_backward)
        return;
    CHECK_OK(tt_optimizer_step(sgd));
    tt_optimizer_zero_grad(sgd);
}

static void train(tt_group *group, int rank, const run *r, result *out) {
    tt_module *model = make_model(r, rank), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 512);
    CHECK(ddp);
    CHECK(tt_reducer_bucket_count(tt_ddp_reducer(ddp)) > 1);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9);
    if (r->in_backward)
        CHECK_OK(tt_ddp_step_in_backward(ddp, sgd, .zero_grad = true));
    for (int step = 0; step < STEPS; step++)
        train_step(group, ddp, sgd, r, rank, step);
    keep_parameters(tt_module_parameters(model), out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static tt_store *under(tt_store *store, const char *prefix) {
    tt_store *out = NULL;
    CHECK_OK(tt_prefix_store(&out, prefix, store));
    return out;
}

/* Is it rank 0's result, bit by bit? */
static void check_same(tt_group *group, const result *own) {
    static result first;
    first = *own;
    CHECK_OK(tt_broadcast(group, &first, sizeof first, TT_U8, 0));
    CHECK(!memcmp(&first, own, sizeof first));
}

static int equal_to_native(tt_store *store, int rank, int world, void *arg) {
    static result far, near;
    const run *r = arg;
    tt_store *one = under(store, "native"), *other = under(store, "nccl");
    tt_group *native = join_group(one, rank, world), *nccl = nccl_join(other, rank, world);
    const double most = r->dtype == TT_F32 ? 1e-6 : 2e-2;
    train(native, rank, r, &near);
    train(nccl, rank, r, &far);
    check_same(native, &far);
    CHECK(far.count > 0 && far.count == near.count);
    for (int64_t i = 0; i < far.count; i++)
        CHECK(fabs(far.parameters[i] - near.parameters[i]) <= most);
    tt_destroy_process_group(nccl);
    tt_destroy_process_group(native);
    tt_store_free(one);
    tt_store_free(other);
    return 0;
}

static void networks_train_as_over_the_native_engine(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++) {
        with_ranks(world, equal_to_native, &(run){.dtype = TT_F32});
        with_ranks(world, equal_to_native, &(run){.dtype = TT_F32, .conv = true});
    }
    with_ranks(2, equal_to_native, &(run){.dtype = TT_F32, .clips = true, .accumulates = true});
    with_ranks(2, equal_to_native, &(run){.dtype = TT_F32, .in_backward = true});
}

static void parameters_may_have_16_bits(void **state) {
    (void)state;
    with_ranks(2, equal_to_native, &(run){.dtype = TT_BF16});
    with_ranks(2, equal_to_native, &(run){.dtype = TT_F16});
}

/* ---- overlap ---- */

typedef struct watched {
    tt_reducer *reducer;
    int passes;
} watched;

/* The last gradient waits until the first bucket, of which nobody has said yet that it has ended, is averaged. */
static tt_status await_first_bucket(tt_tensor *x, void *user) {
    watched *w = user;
    (void)x;
    const tt__reducer_bucket *first = &w->reducer->buckets[0];
    int64_t end_ms = tt__now_ms() + PATIENCE_MS;
    CHECK(w->reducer->bucket_count > 2 && w->reducer->begun > 0 && w->reducer->begun < w->reducer->bucket_count);
    while (!w->reducer->ended && !tt_work_is_completed(first->work))
        CHECK(tt__now_ms() < end_ms);
    w->passes++;
    return TT_OK;
}

static int overlaps(tt_store *store, int rank, int world, void *arg) {
    const run r = {.dtype = TT_F32};
    tt_group *group = nccl_join(store, rank, world);
    tt_module *model = make_model(&r, rank);
    watched w = {NULL, 0};
    (void)arg;
    CHECK_OK(tt_register_post_accumulate_grad_hook(tt_module_parameters(model)->tensors[0], await_first_bucket, &w));
    tt_module *ddp = tt_ddp(model, group, .bucket_cap_bytes = 256);
    CHECK(ddp);
    w.reducer = tt_ddp_reducer(ddp);
    for (int step = 0; step < 3; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(loss_of(ddp, &r, rank, step)));
    }
    CHECK(w.passes == 3);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void buckets_are_averaged_beside_the_pass(void **state) {
    (void)state;
    with_ranks(2, overlaps, NULL);
    with_ranks(3, overlaps, NULL);
}

/* ---- what a pass leaves out ---- */

static int leaves_out(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    (void)arg;
    check_leaves_out(group, rank, TT_CUDA(rank));
    tt_destroy_process_group(group);
    return 0;
}

static void what_a_pass_leaves_out(void **state) {
    (void)state;
    with_ranks(2, leaves_out, NULL);
}

/* Copies are slower then. */
static void memory_that_cannot_be_pinned(void **state) {
    run r = {.dtype = TT_F32};
    (void)state;
    setenv("FAKE_CUDA_PINS", "0", 1);
    with_ranks(2, equal_to_native, &r);
    with_ranks(2, leaves_out, NULL);
    unsetenv("FAKE_CUDA_PINS");
}

/* ---- ranks with different numbers of batches ---- */

static tt_status update(void *user) {
    tt_status status = tt_optimizer_step(user);
    tt_optimizer_zero_grad(user);
    return status;
}

static void train_unevenly(tt_group *group, int rank, result *out) {
    const run r = {.dtype = TT_F32};
    tt_module *model = make_model(&r, rank), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 2048);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1);
    tt_join *join = tt_join_new(ddp, .divide_by_present = true, .after_step = update, .user = sgd);
    CHECK(join);
    for (int step = 0; step < 3 + 2 * rank; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(pass(group, loss_of(ddp, &r, rank, step)));
        CHECK_OK(update(sgd));
    }
    CHECK_OK(tt_join_wait(join));
    tt_join_free(join);
    keep_parameters(tt_module_parameters(model), out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static int joins(tt_store *store, int rank, int world, void *arg) {
    static result far, near;
    tt_store *one = under(store, "native"), *other = under(store, "nccl");
    tt_group *native = join_group(one, rank, world), *nccl = nccl_join(other, rank, world);
    (void)arg;
    train_unevenly(native, rank, &near);
    train_unevenly(nccl, rank, &far);
    check_same(native, &far);
    for (int64_t i = 0; i < far.count; i++)
        CHECK(fabs(far.parameters[i] - near.parameters[i]) <= 1e-6);
    tt_destroy_process_group(nccl);
    tt_destroy_process_group(native);
    tt_store_free(one);
    tt_store_free(other);
    return 0;
}

static void ranks_may_have_more_batches(void **state) {
    (void)state;
    with_ranks(3, joins, NULL);
}

/* ---- errors ---- */

static int refused(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_module *model = tt_nn_linear(2, 2 + rank);
    (void)arg;
    CHECK(!tt_ddp(model, group) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("parameter \"weight\" lies on cpu, of which the back end nccl takes no memory");
    CHECK_OK(tt_module_to_device(model, TT_CUDA(rank)));
    CHECK(!tt_ddp(model, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("tt_ddp: rank 1 has parameter 0 \"weight\" f32 (3, 2)");
    tt_module_free(model);
    model = tt_nn_linear(2, 2);
    CHECK_OK(tt_module_to_device(model, TT_CUDA(rank)));
    tt_module *ddp = tt_ddp(model, group);
    CHECK(ddp);
    CHECK(tt_powersgd_hook(ddp, .rank = 1) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("the back end nccl averages gradients in memory of a device, and hook \"powersgd\" works on the host's");
    const int scope = tt_scope_begin();
    tt_tensor *x = tt_to_device(tt_ones(TT_SHAPE(1, 2), TT_F32), TT_CUDA(rank));
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, x)))); /* the wrapper goes on */
    tt_scope_end(scope);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    with_ranks(2, refused, NULL);
}

/* Wrapping again and again leaves nothing behind in 64 MiB. */
static int wraps_often(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_module *model = tt_nn_linear(512, 512);
    (void)arg;
    CHECK_OK(tt_module_to_device(model, TT_CUDA(rank)));
    for (int i = 0; i < (TT__TSAN ? 8 : 80); i++) {
        TT_AUTO_SCOPE;
        tt_module *ddp = tt_ddp(model, group);
        CHECK(ddp);
        tt_tensor *x = tt_to_device(tt_ones(TT_SHAPE(2, 512), TT_F32), TT_CUDA(rank));
        if (i % 20 == 0)
            CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, x))));
        tt_module_free(ddp);
    }
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void nothing_is_left(void **state) {
    (void)state;
    with_ranks(2, wraps_often, NULL);
}

static tt_status kill_oneself(tt_tensor *x, void *user) {
    (void)x;
    if (++*(int *)user == 3)
        raise(SIGKILL);
    return TT_OK;
}

/* Rank 1 dies in its third pass, when some buckets have begun; or its NCCL fails, as *arg says. */
static int fails_in_a_step(tt_store *store, int rank, int world, void *arg) {
    const run r = {.dtype = TT_F32};
    int passes = 0;
    tt_group *group = nccl_join(store, rank, world);
    tt_module *model = make_model(&r, rank), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 512);
    CHECK(ddp);
    if (rank == 1 && !arg)
        CHECK_OK(tt_register_post_accumulate_grad_hook(tt_module_parameters(model)->tensors[2], kill_oneself, &passes));
    tt_status status = TT_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        TT_AUTO_SCOPE;
        if (arg && step == 2)
            setenv("FAKE_NCCL_ASYNC", arg, 1);
        tt_tensor *loss = loss_of(ddp, &r, rank, step);
        status = loss ? tt_backward(loss) : tt_last_status();
    }
    CHECK(status && status != TT_ERR_TIMEOUT);
    CHECK_TEXT("rank 1");
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void a_rank_that_dies_is_named(void **state) {
    (void)state;
    ranks ranks;
    start_ranks(&ranks, 3, fails_in_a_step, NULL);
    for (int r = 0; r < 3; r++)
        assert_int_equal(end_of_rank(&ranks, r), r == 1 ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
}

static void an_error_of_nccl_is_named(void **state) {
    (void)state;
    if (TT__TSAN)
        return; /* what is left of a failed call writes beside later work, whose results are worthless */
    with_ranks(3, fails_in_a_step, (void *)(uintptr_t) "AllReduce@1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_train_as_over_the_native_engine),
        cmocka_unit_test(parameters_may_have_16_bits),
        cmocka_unit_test(memory_that_cannot_be_pinned),
        cmocka_unit_test(buckets_are_averaged_beside_the_pass),
        cmocka_unit_test(what_a_pass_leaves_out),
        cmocka_unit_test(ranks_may_have_more_batches),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(an_error_of_nccl_is_named),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
