/* What else ranks do with tensors on CUDA devices, on the fake: SyncBatchNorm, stages and pipelines, each rank on a
 * device of its own, and checkpoints that another device reads. All beside the same on the cpu. */
#include <math.h>
#include <string.h>
#include <tutti/tutti.h>

#include "support/cuda_ranks.h"

enum { STEPS = 6, BATCH = 8, WIDTH = 6, CLASSES = 3 };

static tt_tensor *inputs(int rank, int step, const tt_device *device) {
    tt_manual_seed((uint64_t)(100 * step + rank));
    return tt_to_device(tt_randn(TT_SHAPE(BATCH, WIDTH), NULL), device);
}

static tt_tensor *targets(int step, const tt_device *device) {
    tt_tensor *y = tt_zeros(TT_SHAPE(BATCH), TT_I64);
    for (int i = 0; i < BATCH; i++)
        tt_tensor_i64(y)[i] = (i + step) % CLASSES;
    return tt_to_device(y, device);
}

static tt_module *model_on(const tt_device *device) {
    tt_manual_seed(7);
    tt_module *model = tt_nn_sequential(tt_nn_linear(WIDTH, 10), tt_nn_batch_norm1d(10), tt_nn_relu(),
                                        tt_nn_linear(10, 8), tt_nn_relu(), tt_nn_linear(8, CLASSES));
    CHECK(model && tt_module_to_device(model, device) == TT_OK);
    return model;
}

static void expect_near(const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++) {
        if (!(fabs(a[i] - b[i]) <= 1e-4))
            fprintf(stderr, "step %d: %.9g and %.9g\n", i, a[i], b[i]);
        CHECK(fabs(a[i] - b[i]) <= 1e-4);
    }
}

/* ---- SyncBatchNorm */

static void train_synced(tt_group *group, int rank, const tt_device *device, double *loss) {
    tt_module *model = tt_convert_sync_batchnorm(model_on(device), group), *ddp = tt_ddp(model, group);
    CHECK(ddp);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *l = tt_cross_entropy(tt_module_forward(ddp, inputs(rank, step, device)), targets(step, device));
        tt_optimizer_zero_grad(sgd);
        CHECK_OK(tt_backward(l));
        CHECK_OK(tt_item(l, &loss[step]));
        CHECK_OK(tt_optimizer_step(sgd));
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void synced(tt_group *group, int rank, void *user) {
    (void)user;
    double near[STEPS], far[STEPS];
    train_synced(group, rank, TT_CPU, near);
    train_synced(group, rank, TT_CUDA(rank % 2), far);
    expect_near(far, near, STEPS);
}

static void sync_batch_norm_has_the_cpus_losses(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, synced, NULL), 0);
}

/* ---- pipelines, and stages by hand */

static void train_pipeline(tt_group *group, int rank, const tt_device *device, tt_pipeline_schedule schedule,
                           double *loss) {
    tt_module *model = model_on(device);
    tt_pipeline *pipe;
    CHECK_OK(tt_pipeline_new(&pipe, group, model, 4, .schedule = schedule));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(tt_pipeline_module(pipe)), 0.1);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(sgd);
        loss[step] = 0;
        CHECK_OK(tt_pipeline_step(pipe, inputs(0, step, device), targets(step, device), .loss = &loss[step]));
        CHECK_OK(tt_optimizer_step(sgd));
    }
    CHECK_OK(tt_pipeline_gather(pipe));
    CHECK(tt_tensor_device(tt_module_parameters(model)->tensors[0]) == device);
    tt_optimizer_free(sgd);
    tt_pipeline_free(pipe);
    tt_module_free(model);
    CHECK(rank || loss[0] == 0);
}

static void piped(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_pipeline_schedule schedules[] = {TT_PIPELINE_1F1B, TT_PIPELINE_INTERLEAVED_1F1B,
                                                     TT_PIPELINE_ZERO_BUBBLE};
    double near[STEPS], far[STEPS];
    for (int i = 0; i < 3; i++) {
        train_pipeline(group, rank, TT_CPU, schedules[i], near);
        train_pipeline(group, rank, TT_CUDA(rank), schedules[i], far);
        expect_near(far, near, STEPS);
    }
}

static void pipelines_have_the_cpus_losses(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, piped, NULL), 0);
}

static void staged(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    const tt_device *device = TT_CUDA(rank);
    if (rank == 0) {
        tt_tensor *x = tt_requires_grad_(tt_to_device(tt_full(TT_SHAPE(2, 3), TT_F32, 5), device), true);
        CHECK_OK(tt_backward(tt_send_activation(tt_scale(x, 2), group, 1)));
        CHECK(tt_tensor_device(tt_grad(x)) == device);
        CHECK(tt_equal(tt_to_device(tt_grad(x), TT_CPU), tt_full(TT_SHAPE(2, 3), TT_F32, 6)));
    } else {
        tt_tensor *h = tt_recv_activation(group, 0, .device = device);
        CHECK(tt_tensor_device(h) == device);
        CHECK_OK(tt_backward(tt_sum(tt_scale(h, 3))));
    }
}

static void activations_go_between_devices(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, staged, NULL), 0);
}

/* Two stages in one process, on two devices. */
static void in_one_process(tt_group *group, int rank, void *user) {
    (void)group;
    (void)rank;
    (void)user;
    double loss[2][STEPS];
    for (int far = 0; far < 2; far++) {
        const tt_device *one = far ? TT_CUDA(0) : TT_CPU, *two = far ? TT_CUDA(1) : TT_CPU;
        tt_manual_seed(3);
        tt_module *a = tt_nn_linear(WIDTH, 8), *b = tt_nn_linear(8, CLASSES), *both = tt_nn_sequential(a, b);
        CHECK(!tt_module_to_device(a, one) && !tt_module_to_device(b, two));
        for (int step = 0; step < STEPS; step++) {
            TT_AUTO_SCOPE;
            tt_tensor *h = tt_relu(tt_module_forward(a, inputs(0, step, one)));
            tt_tensor *l = tt_cross_entropy(tt_module_forward(b, tt_to_device(h, two)), targets(step, two));
            CHECK_OK(tt_backward(l));
            CHECK_OK(tt_item(l, &loss[far][step]));
            for (int64_t i = 0; i < 4; i++) {
                TT_NO_GRAD;
                tt_tensor *x = tt_module_parameters(both)->tensors[i];
                CHECK(tt_copy(x, tt_add(x, tt_scale(tt_grad(x), -0.1))) == TT_OK);
                tt_zero_grad(x);
            }
        }
        tt_module_free(both);
    }
    expect_near(loss[1], loss[0], STEPS);
}

static void two_stages_in_one_process(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, in_one_process, NULL), 0);
}

/* ---- threads, a device each */

typedef struct replicated {
    double loss[STEPS];
    float rest[400]; /* the state, and the last gradient of x */
    int64_t count;
} replicated;

static void keep(replicated *out, tt_tensor *x) {
    tt_tensor *near = tt_contiguous(tt_to(tt_to_device(x, TT_CPU), TT_F32));
    CHECK(out->count + tt_tensor_numel(near) <= 400);
    memcpy(out->rest + out->count, tt_tensor_f32(near), (size_t)tt_tensor_numel(near) * sizeof(float));
    out->count += tt_tensor_numel(near);
}

/* Each step has two forwards before its pass. */
static void train_replicas(const tt_device *first, const tt_device *second, replicated *out) {
    memset(out, 0, sizeof *out);
    tt_module *model = model_on(first), *dp;
    if (second) {
        tt_module *copy = model_on(second);
        CHECK_OK(tt_init_constant_(tt_module_parameters(copy)->tensors[0], 5));
        dp = tt_data_parallel(model, .copies = (tt_module *[]){copy}, .copy_count = 1);
    } else {
        dp = tt_data_parallel(model, .replicas = 2);
    }
    CHECK(dp && tt_module_parameters(dp)->count == 8);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(dp), 0.1, .momentum = 0.9);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_requires_grad_(inputs(0, step, first), true), *more = inputs(1, step, first);
        tt_tensor *l = tt_cross_entropy(tt_module_forward(dp, x), targets(step, first));
        l = tt_add(l, tt_cross_entropy(tt_module_forward(dp, more), targets(step + 1, first)));
        tt_optimizer_zero_grad(sgd);
        CHECK_OK(tt_backward(l));
        CHECK_OK(tt_item(l, &out->loss[step]));
        CHECK_OK(tt_optimizer_step(sgd));
        CHECK(tt_tensor_device(tt_grad(x)) == first);
        if (step + 1 == STEPS)
            keep(out, tt_grad(x));
    }
    const tt_named_tensors *state = tt_module_state_dict(dp);
    for (int64_t i = 0; i < state->count; i++) {
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        CHECK(tt_tensor_device(state->tensors[i]) == first);
        keep(out, state->tensors[i]);
    }
    tt_optimizer_free(sgd);
    tt_module_free(dp);
}

static void replicate(tt_group *group, int rank, void *user) {
    (void)group;
    (void)rank;
    (void)user;
    static replicated near, far, one;
    train_replicas(TT_CPU, NULL, &near);
    train_replicas(TT_CUDA(0), TT_CUDA(1), &far);
    train_replicas(TT_CUDA(1), NULL, &one); /* both on one device */
    CHECK(near.count > 200 && far.count == near.count);
    expect_near(far.loss, near.loss, STEPS);
    CHECK(!memcmp(&one, &far, sizeof far));
    for (int64_t i = 0; i < near.count; i++)
        CHECK(fabs((double)near.rest[i] - (double)far.rest[i]) <= 1e-4);
    tt_module *unlike = tt_nn_linear(3, 2);
    CHECK(!tt_data_parallel(tt_nn_linear(2, 2), .copies = &unlike, .copy_count = 1));
    CHECK(tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("expected copies like the module, got copy 1 with \"weight\" f32 (2, 3) where that has "
               "\"weight\" f32 (2, 2)");
}

static void replicas_have_devices(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, replicate, NULL), 0);
}

/* ---- checkpoints */

static void train_on(tt_module *model, tt_optimizer *adam, int begin, const tt_device *device, double *loss) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *l =
            tt_cross_entropy(tt_module_forward(model, inputs(0, begin + step, device)), targets(begin + step, device));
        tt_optimizer_zero_grad(adam);
        CHECK_OK(tt_backward(l));
        CHECK_OK(tt_item(l, &loss[step]));
        CHECK_OK(tt_optimizer_step(adam));
    }
}

/* What cuda:0 saved goes on there, on another device to the bit, and on the cpu. */
static void saved(tt_group *group, int rank, void *user) {
    (void)group;
    (void)rank;
    const char *path = user;
    const tt_device *devices[] = {TT_CUDA(0), TT_CUDA(1), TT_CPU};
    double loss[3][STEPS];
    tt_module *model = model_on(devices[0]);
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 0.01);
    train_on(model, adam, 0, devices[0], loss[0]);
    CHECK_OK(tt_checkpoint_save(path, model, adam, NULL));
    train_on(model, adam, STEPS, devices[0], loss[0]);
    tt_optimizer_free(adam);
    tt_module_free(model);
    for (int d = 1; d < 3; d++) {
        model = model_on(devices[d]);
        adam = tt_adam(tt_module_parameters(model), 0.01);
        CHECK_OK(tt_checkpoint_load(path, model, adam, NULL));
        CHECK(tt_tensor_device(tt_module_parameters(model)->tensors[0]) == devices[d]);
        train_on(model, adam, STEPS, devices[d], loss[d]);
        tt_optimizer_free(adam);
        tt_module_free(model);
    }
    CHECK(!memcmp(loss[1], loss[0], sizeof loss[0]));
    expect_near(loss[2], loss[0], STEPS);
}

static void checkpoints_are_read_elsewhere(void **state) {
    (void)state;
    char path[] = "/tmp/test_cuda_parallel_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(run_ranks(1, saved, path), 0);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_batch_norm_has_the_cpus_losses),
        cmocka_unit_test(pipelines_have_the_cpus_losses),
        cmocka_unit_test(activations_go_between_devices),
        cmocka_unit_test(two_stages_in_one_process),
        cmocka_unit_test(replicas_have_devices),
        cmocka_unit_test(checkpoints_are_read_elsewhere),
    };
    return cuda_choose_fake() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
