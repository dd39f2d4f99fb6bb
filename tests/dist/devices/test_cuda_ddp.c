/* Training between ranks with parameters on CUDA devices, which two ranks may share: on the fake of CUDA. What DDP does
 * there has the bits of averages by hand, and the losses of DDP on the cpu. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/cuda_ranks.h"
#include "support/leaves_out.h"

#include "base/build.h"

enum { STEPS = TT__TSAN ? 8 : 20, BATCH = 6, SIDE = 8, CLASSES = 4, MOST = 5000 };

/* How one run trains. */
typedef struct run {
    bool conv, by_hand;
    const char *device;
    bool hook;        /* gradients travel as bf16 */
    bool in_backward; /* the optimizer steps in the pass */
} run;

typedef struct result {
    double loss[STEPS];
    float parameters[MOST];
    int64_t count;
} result;

static tt_module *mlp(void) {
    return tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(SIDE * SIDE, 24), tt_nn_relu(), tt_nn_linear(24, 16),
                            tt_nn_relu(), tt_nn_linear(16, CLASSES));
}

static tt_module *conv_net(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3, .padding = 1), tt_nn_batch_norm2d(4), tt_nn_relu(),
                            tt_nn_max_pool2d(2), tt_nn_conv2d(4, 8, 3), tt_nn_relu(), tt_nn_flatten(),
                            tt_nn_linear(8 * 2 * 2, CLASSES));
}

static tt_module *make_model(const run *r, int rank) {
    tt_manual_seed((uint64_t)rank + 1);
    tt_module *model = r->conv ? conv_net() : mlp();
    CHECK(model && tt_module_to_device(model, tt_device_get(r->device)) == TT_OK);
    return model;
}

static tt_tensor *loss_of(tt_module *model, int rank, int step, const tt_device *device) {
    tt_manual_seed((uint64_t)(1000 * step + rank));
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, 1, SIDE, SIDE), NULL), *y = tt_zeros(TT_SHAPE(BATCH), TT_I64);
    for (int i = 0; i < BATCH; i++)
        tt_tensor_i64(y)[i] = (i * 3 + step + rank) % CLASSES;
    return tt_cross_entropy(tt_module_forward(model, tt_to_device(x, device)), tt_to_device(y, device));
}

/* ---- by hand: everything goes over the host, tensor by tensor */

static void average_one(tt_group *group, tt_tensor *x, bool takes_first) {
    tt_tensor *near = tt_clone(tt_to_device(x, TT_CPU));
    CHECK_OK(takes_first ? tt_tensor_broadcast(group, near, 0) : tt_tensor_all_reduce(group, near, TT_AVG));
    CHECK_OK(tt_copy(x, near));
}

static void take_first(tt_group *group, const tt_named_tensors *list) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    for (int64_t i = 0; i < list->count; i++)
        average_one(group, list->tensors[i], true);
}

static void average_grads(tt_group *group, const tt_named_tensors *list) {
    TT_NO_GRAD;
    for (int64_t i = 0; i < list->count; i++)
        average_one(group, tt_grad(list->tensors[i]), false);
}

/* ---- a run */

static void train_step(tt_group *group, const run *r, tt_module *trained, int rank, int step, double *loss) {
    TT_AUTO_SCOPE;
    const tt_device *device = tt_device_get(r->device);
    if (r->by_hand)
        take_first(group, tt_module_buffers(trained));
    tt_tensor *l = loss_of(trained, rank, step, device);
    CHECK_OK(tt_backward(l));
    if (r->by_hand)
        average_grads(group, tt_module_parameters(trained));
    CHECK_OK(tt_item(l, loss));
}

static void keep_parameters(const tt_named_tensors *list, result *out) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    for (int64_t i = 0; i < list->count; i++) {
        tt_tensor *near = tt_contiguous(tt_to_device(list->tensors[i], TT_CPU));
        CHECK(out->count + tt_tensor_numel(near) <= MOST);
        memcpy(out->parameters + out->count, tt_tensor_f32(near), (size_t)tt_tensor_numel(near) * sizeof(float));
        out->count += tt_tensor_numel(near);
    }
}

static void train(tt_group *group, int rank, const run *r, result *out) {
    memset(out, 0, sizeof *out);
    tt_module *model = make_model(r, rank);
    tt_module *ddp = r->by_hand ? NULL : tt_ddp(model, group, .bucket_cap_bytes = 2048);
    CHECK(r->by_hand || ddp);
    if (r->by_hand)
        take_first(group, tt_module_parameters(model));
    if (r->hook)
        CHECK_OK(tt_bf16_hook(ddp));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9);
    if (r->in_backward)
        CHECK_OK(tt_ddp_step_in_backward(ddp, sgd, .zero_grad = true));
    for (int step = 0; step < STEPS; step++) {
        if (!r->in_backward)
            tt_optimizer_zero_grad(sgd);
        train_step(group, r, ddp ? ddp : model, rank, step, &out->loss[step]);
        CHECK(r->in_backward || tt_optimizer_step(sgd) == TT_OK);
    }
    keep_parameters(tt_module_parameters(model), out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

/* On devices of their own, and on one that all share. */
static void equal_to_averages_by_hand(tt_group *group, int rank, void *user) {
    static result far, hand, near;
    const bool *conv = user;
    const char *own = rank % 2 ? "cuda:1" : "cuda:0";
    train(group, rank, &(run){.conv = *conv, .device = own, .by_hand = true}, &hand);
    train(group, rank, &(run){.conv = *conv, .device = own}, &far);
    CHECK(far.count > 0 && !memcmp(&far, &hand, sizeof far));
    train(group, rank, &(run){.conv = *conv, .device = "cuda:0"}, &far);
    CHECK(!memcmp(&far, &hand, sizeof far));
    if (!*conv)
        train(group, rank, &(run){.device = "cuda:0", .in_backward = true}, &far);
    CHECK(!memcmp(&far, &hand, sizeof far));
    train(group, rank, &(run){.conv = *conv, .device = "cpu"}, &near);
    for (int step = 0; step < STEPS; step++)
        CHECK(fabs(near.loss[step] - far.loss[step]) <= 1e-4);
    CHECK(fabs(far.loss[0] - far.loss[STEPS - 1]) > 1e-3); /* it learns */
    CHECK(cuda_pinned_left() == 0);
}

static void an_mlp_has_the_bits_of_averages_by_hand(void **state) {
    (void)state;
    bool conv = false;
    assert_int_equal(run_ranks(2, equal_to_averages_by_hand, &conv), 0);
    assert_int_equal(run_ranks(3, equal_to_averages_by_hand, &conv), 0);
}

static void a_conv_net_has_them_too(void **state) {
    (void)state;
    bool conv = true;
    assert_int_equal(run_ranks(2, equal_to_averages_by_hand, &conv), 0);
    assert_int_equal(run_ranks(3, equal_to_averages_by_hand, &conv), 0);
}

/* ---- hooks, which see buckets on the host */

static void with_a_hook(tt_group *group, int rank, void *user) {
    (void)user;
    static result far, near;
    train(group, rank, &(run){.device = "cuda:0", .hook = true}, &far);
    train(group, rank, &(run){.device = "cpu", .hook = true}, &near);
    for (int step = 0; step < STEPS; step++)
        CHECK(fabs(near.loss[step] - far.loss[step]) <= 2e-2);
}

static void hooks_work(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, with_a_hook, NULL), 0);
}

/* ---- what a pass leaves out ---- */

static void leaves_out(tt_group *group, int rank, void *user) {
    (void)user;
    check_leaves_out(group, rank, TT_CUDA(0));
    CHECK(cuda_pinned_left() == 0);
}

static void what_a_pass_leaves_out(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, leaves_out, NULL), 0);
}

/* ---- ranks with different numbers of batches */

static tt_status update(void *user) {
    tt_optimizer *sgd = user;
    tt_status status = tt_optimizer_step(sgd);
    tt_optimizer_zero_grad(sgd);
    return status;
}

static void train_unevenly(tt_group *group, int rank, const char *device, result *out) {
    const run r = {.device = device};
    memset(out, 0, sizeof *out);
    tt_module *model = make_model(&r, rank), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 2048);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1);
    tt_join *join = tt_join_new(ddp, .divide_by_present = true, .after_step = update, .user = sgd);
    CHECK(join);
    for (int step = 0; step < 3 + 2 * rank; step++) {
        train_step(group, &r, ddp, rank, step, &out->loss[step]);
        CHECK_OK(update(sgd));
    }
    CHECK_OK(tt_join_wait(join));
    tt_join_free(join);
    keep_parameters(tt_module_parameters(model), out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void joins(tt_group *group, int rank, void *user) {
    (void)user;
    static result far, near;
    train_unevenly(group, rank, "cuda:0", &far);
    train_unevenly(group, rank, "cpu", &near);
    CHECK(far.count > 0 && far.count == near.count);
    for (int64_t i = 0; i < far.count; i++)
        CHECK(fabs((double)far.parameters[i] - (double)near.parameters[i]) <= 1e-4);
}

static void ranks_may_have_more_batches(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, joins, NULL), 0);
}

/* ---- errors */

static void refused(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    tt_module *first = tt_nn_linear(2, 2), *second = tt_nn_linear(2, 2), *both = tt_nn_sequential(first, second);
    CHECK_OK(tt_module_to_device(second, TT_CUDA(1)));
    CHECK(!tt_ddp(both, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("parameter \"0.weight\" lies on cpu, and \"1.weight\" on cuda:1; expected all");
    CHECK_OK(tt_module_to_device(both, TT_CUDA(1)));
    tt_module *ddp = tt_ddp(both, group);
    CHECK(ddp);
    tt_module_free(ddp);
    tt_module_free(both);
}

static void several_devices_are_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refused, NULL), 0);
}

/* Each wrapper has a bucket of 1 MiB in 64 MiB of memory. */
static void wrap_often(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    tt_module *model = tt_nn_linear(512, 512);
    CHECK_OK(tt_module_to_device(model, TT_CUDA(0)));
    for (int i = 0; i < (TT__TSAN ? 10 : 100); i++) {
        TT_AUTO_SCOPE;
        tt_module *ddp = tt_ddp(model, group);
        CHECK(ddp && cuda_pinned_ranges() > 0);
        tt_tensor *x = tt_to_device(tt_ones(TT_SHAPE(2, 512), TT_F32), TT_CUDA(0));
        if (i % 20 == 0)
            CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, x))));
        tt_module_free(ddp);
        CHECK(cuda_pinned_left() == 0);
    }
    tt_module_free(model);
}

static void nothing_is_left(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, wrap_often, NULL), 0);
}

/* ---- a rank that fails */

enum { FAIL_STEP = TT__TSAN ? 37 : 7 };
enum { LARGE = 2300 }; /* a weight of 21 MB */

static tt_group *join_under(tt_store *store, const char *prefix, int rank, int world) {
    tt_store *under = NULL;
    CHECK_OK(tt_prefix_store(&under, prefix, store));
    tt_group *group = join_group(under, rank, world);
    tt_store_free(under);
    return group;
}

/* Rank 1 has memory for the parameters, and none for a bucket. */
static int runs_out(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static result out;
    setenv("FAKE_CUDA_MEMORY", rank == 1 ? "32" : "128", 1);
    tt_group *group = join_under(store, "first", rank, world);
    tt_module *model = tt_nn_linear(LARGE, LARGE);
    CHECK_OK(tt_module_to_device(model, TT_CUDA(0)));
    tt_module *ddp = tt_ddp(model, group);
    tt_status status = ddp ? TT_OK : tt_last_status();
    if (ddp) /* it was through when rank 1 failed */
        status = tt_barrier(group);
    if (rank == 1) {
        CHECK(status == TT_ERR_MEMORY);
        CHECK_TEXT("bucket 1 of ");
        CHECK_TEXT("cuda:0 is out of memory");
    } else {
        CHECK(status == TT_ERR_ABORTED);
        CHECK_TEXT("rank 1");
        CHECK_TEXT("out of memory");
    }
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    CHECK(cuda_pinned_left() == 0);
    group = join_under(store, "second", rank, world); /* the process goes on */
    train(group, rank, &(run){.device = "cuda:0"}, &out);
    tt_destroy_process_group(group);
    return 0;
}

static void no_memory_for_a_bucket(void **state) {
    (void)state;
    with_ranks(3, runs_out, NULL);
}

static tt_status two_steps(tt_module *ddp, tt_optimizer *sgd, int rank) {
    tt_status status = TT_OK;
    for (int step = 0; step < 2 && !status; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *loss = loss_of(ddp, rank, step, TT_CUDA(0));
        status = loss ? tt_backward(loss) : tt_last_status();
        if (!status)
            status = tt_optimizer_step(sgd);
    }
    return status;
}

/* Call number *arg of CUDA's fails on rank 1, and all that follow it. Nobody waits for it. */
static int fails_somewhere(tt_store *store, int rank, int world, void *arg) {
    char number[16];
    snprintf(number, sizeof number, "%d", rank == 1 ? *(const int *)arg : 0);
    setenv("FAKE_CUDA_FAIL", number, 1);
    tt_group *group = join_group(store, rank, world);
    tt_module *model = conv_net(), *ddp = NULL;
    const tt_device *device = TT_CUDA(0);
    tt_status status = device ? tt_module_to_device(model, device) : tt_last_status();
    if (!status && !(ddp = tt_ddp(model, group, .bucket_cap_bytes = 512)))
        status = tt_last_status();
    tt_optimizer *sgd = ddp ? tt_sgd(tt_module_parameters(ddp), 0.1) : NULL;
    if (ddp)
        status = two_steps(ddp, sgd, rank);
    CHECK(status != TT_ERR_TIMEOUT);
    CHECK(status || *(const int *)arg > 100); /* there are as many calls */
    if (rank == 0 && status)
        CHECK_TEXT("rank 1");
    if (rank == 1 && status)
        CHECK(status == TT_ERR_SYSTEM || status == TT_ERR_MEMORY);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void calls_of_cuda_fail(void **state) {
    (void)state;
    for (int n = 1; n < 1200; n += n < 200 ? FAIL_STEP : 8 * FAIL_STEP)
        with_ranks(2, fails_somewhere, &n);
}

static tt_status kill_oneself(tt_tensor *x, void *user) {
    (void)x;
    if (++*(int *)user == 3)
        raise(SIGKILL);
    return TT_OK;
}

/* Rank 1 dies in its third backward pass. */
static int dies(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    int passes = 0;
    tt_group *group = join_group(store, rank, world);
    const run r = {.device = "cuda:0"};
    tt_module *model = make_model(&r, rank), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 512);
    CHECK(ddp);
    if (rank == 1)
        CHECK_OK(tt_register_post_accumulate_grad_hook(tt_module_parameters(model)->tensors[2], kill_oneself, &passes));
    tt_status status = TT_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *loss = loss_of(ddp, rank, step, TT_CUDA(0));
        status = loss ? tt_backward(loss) : tt_last_status();
    }
    CHECK(status == TT_ERR_PEER || status == TT_ERR_ABORTED);
    CHECK_TEXT("rank 1");
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    CHECK(cuda_pinned_left() == 0);
    return 0;
}

static void a_rank_that_dies_is_named(void **state) {
    (void)state;
    ranks ranks;
    start_ranks(&ranks, 3, dies, NULL);
    assert_int_equal(end_of_rank(&ranks, 0), 0);
    assert_int_equal(end_of_rank(&ranks, 2), 0);
    assert_int_equal(end_of_rank(&ranks, 1), 128 + SIGKILL);
    tt_store_server_free(ranks.server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp_has_the_bits_of_averages_by_hand),
        cmocka_unit_test(a_conv_net_has_them_too),
        cmocka_unit_test(hooks_work),
        cmocka_unit_test(what_a_pass_leaves_out),
        cmocka_unit_test(ranks_may_have_more_batches),
        cmocka_unit_test(several_devices_are_refused),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(no_memory_for_a_bucket),
        cmocka_unit_test(calls_of_cuda_fail),
        cmocka_unit_test(a_rank_that_dies_is_named),
    };
    const struct CMUnitTest by_host[] = {
        cmocka_unit_test(a_conv_net_has_them_too),     cmocka_unit_test(what_a_pass_leaves_out),
        cmocka_unit_test(ranks_may_have_more_batches), cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(no_memory_for_a_bucket),      cmocka_unit_test(a_rank_that_dies_is_named),
    };
    if (!cuda_choose_fake())
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL); /* gradients are averaged on the devices */
    setenv("TT_CUDA_P2P", "0", 1);
    return failed + cmocka_run_group_tests(by_host, NULL, NULL);
}
