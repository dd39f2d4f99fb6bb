/* Averages of parameters on CUDA devices, on the fakes of CUDA and NCCL: over the native engine the bits of the same
 * numbers on the host, over nccl the numbers. "Training" is an addition of numbers that are drawn on the host. */
#include "support/cuda_ranks.h"
#include "support/nccl.h"

#include <math.h>

enum { NUMBERS = 3, STEPS = 12, MOST = 1600 };

static const int64_t sizes[NUMBERS] = {1, 7, 1500};
static const char *const names[NUMBERS] = {"bias", "scale", "weight"};

typedef enum kind { PERIODIC, HIERARCHICAL, DILOCO, DILOCO_BF16, KINDS } kind;

/* All parameters, and the averager's state. */
typedef struct result {
    double parameters[MOST], state[3 * MOST];
    int64_t count, state_count;
} result;

static void keep(tt_tensor *x, double *to, int64_t *n, int64_t most) {
    TT_AUTO_SCOPE;
    tt_tensor *near = tt_contiguous(tt_to(tt_to_device(x, TT_CPU), TT_F64));
    CHECK(near && *n + tt_tensor_numel(near) <= most);
    memcpy(to + *n, tt_tensor_data(near), (size_t)tt_tensor_numel(near) * sizeof *to);
    *n += tt_tensor_numel(near);
}

static tt_model_averager *averager_of(tt_group *group, kind kind, const tt_named_tensors *list) {
    const int world = tt_get_world_size(group);
    const tt_averaging_level levels[] = {{2, 1}, {4, world}};
    tt_model_averager *a = NULL;
    if (kind == PERIODIC)
        CHECK_OK(tt_periodic_model_averager(&a, group, list, 3, .warmup_steps = 1));
    else if (kind == HIERARCHICAL)
        CHECK_OK(tt_hierarchical_model_averager(&a, group, list, levels, 2));
    else
        CHECK_OK(tt_diloco(&a, group, list, 4, 0.7, 0.9, .send_as = kind == DILOCO ? TT_F32 : TT_BF16));
    return a;
}

static void train(tt_group *group, int rank, const tt_device *device, tt_dtype dtype, kind kind, result *out) {
    tt_tensor *x[NUMBERS];
    memset(out, 0, sizeof *out);
    tt_manual_seed((uint64_t)rank + 1); /* ranks begin with different numbers */
    for (int p = 0; p < NUMBERS; p++) {
        TT_AUTO_SCOPE;
        x[p] = tt_keep(tt_to_device(tt_to(tt_randn(TT_SHAPE(sizes[p]), NULL), dtype), device));
    }
    tt_model_averager *a = averager_of(group, kind, TT_NAMED_TENSORS(NUMBERS, (const char **)names, x));
    for (int step = 0; step < STEPS; step++) {
        for (int p = 0; p < NUMBERS; p++) {
            TT_AUTO_SCOPE;
            tt_tensor *more = tt_to(tt_randn(TT_SHAPE(sizes[p]), NULL), dtype);
            CHECK(tt_add_(x[p], tt_to_device(more, device)));
        }
        CHECK_OK(tt_model_averager_step(a));
    }
    CHECK_OK(tt_model_averager_average(a));
    const tt_named_tensors *state = tt_model_averager_state_dict(a);
    CHECK(state);
    CHECK_OK(tt_model_averager_load_state_dict(a, state));
    for (int64_t i = 0; i < state->count && kind >= DILOCO; i++)
        keep(state->tensors[i], out->state, &out->state_count, 3 * MOST);
    tt_model_averager_free(a);
    for (int p = 0; p < NUMBERS; p++) {
        keep(x[p], out->parameters, &out->count, MOST);
        tt_tensor_free(x[p]);
    }
}

static void near_and_far(tt_group *group, int rank, void *user) {
    static result near, far;
    const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_BF16};
    (void)user;
    for (int d = 0; d < 3; d++)
        for (kind kind = 0; kind < KINDS; kind++) {
            train(group, rank, TT_CPU, dtypes[d], kind, &near);
            train(group, rank, TT_CUDA(rank % 2), dtypes[d], kind, &far);
            CHECK(far.count > MOST - 100 && !memcmp(&near, &far, sizeof far));
        }
}

static void averages_have_the_hosts_bits(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, near_and_far, NULL), 0);
    assert_int_equal(run_ranks(3, near_and_far, NULL), 0);
}

/* Is it rank 0's, bit by bit? */
static void check_alike(tt_group *native, const result *own) {
    static result first;
    first = *own;
    CHECK_OK(tt_broadcast(native, &first, sizeof first, TT_U8, 0));
    CHECK(!memcmp(&first, own, sizeof first));
}

static int over_nccl(tt_store *store, int rank, int world, void *arg) {
    static result near, far;
    (void)arg;
    both_engines both = both_join(store, rank, world);
    tt_group *native = both.native, *nccl = both.nccl;
    for (kind kind = 0; kind < KINDS; kind++)
        for (int d = 0; d < 2; d++) {
            const tt_dtype dtype = d ? TT_F64 : TT_F32;
            train(native, rank, TT_CPU, dtype, kind, &near);
            train(nccl, rank, TT_CUDA(rank), dtype, kind, &far);
            check_alike(native, &far);
            CHECK(far.count > MOST - 100 && near.count == far.count && near.state_count == far.state_count);
            for (int64_t i = 0; i < far.count; i++) /* 16 bits round what is small against the anchor */
                CHECK(fabs(near.parameters[i] - far.parameters[i]) <= (kind == DILOCO_BF16 ? 0.3 : 1e-5));
        }
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32);
    tt_model_averager *a = NULL;
    CHECK(tt_periodic_model_averager(&a, nccl, TT_NAMED_TENSORS(1, (const char *[]){"x"}, &x), 1) ==
          TT_ERR_UNSUPPORTED);
    CHECK_TEXT("tt_periodic_model_averager: the back end nccl takes no memory of cpu");
    tt_tensor_free(x);
    both_leave(&both);
    return 0;
}

static void nccl_has_the_numbers(void **state) {
    (void)state;
    with_ranks(3, over_nccl, NULL);
}

/* ---- post-local SGD */

static void train_post_local(tt_group *group, int rank, const tt_device *device, result *out) {
    memset(out, 0, sizeof *out);
    tt_manual_seed((uint64_t)rank + 1);
    tt_module *model = tt_nn_linear(5, 3);
    CHECK_OK(tt_module_to_device(model, device));
    tt_module *ddp = tt_ddp(model, group);
    tt_model_averager *a = NULL;
    CHECK(ddp);
    CHECK_OK(tt_post_local_sgd(&a, ddp, 3, 2));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to_device(tt_randn(TT_SHAPE(4, 5), NULL), device);
        CHECK_OK(tt_backward(tt_sum(tt_mul(tt_module_forward(ddp, x), tt_module_forward(ddp, x)))));
        CHECK_OK(tt_optimizer_step(sgd));
        tt_optimizer_zero_grad(sgd);
        CHECK_OK(tt_model_averager_step(a));
    }
    for (int64_t i = 0; i < 2; i++) {
        TT_NO_GRAD;
        keep(tt_module_parameters(model)->tensors[i], out->parameters, &out->count, MOST);
    }
    tt_model_averager_free(a);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void check_post_local(const result *near, const result *far) {
    CHECK(far->count == 18);
    for (int64_t i = 0; i < far->count; i++)
        CHECK(fabs(near->parameters[i] - far->parameters[i]) <= 1e-4 * (1 + fabs(near->parameters[i])));
}

static int post_local(tt_store *store, int rank, int world, void *arg) {
    static result near, far;
    (void)arg;
    both_engines both = both_join(store, rank, world);
    tt_group *native = both.native, *nccl = both.nccl;
    train_post_local(native, rank, TT_CPU, &near);
    train_post_local(native, rank, TT_CUDA(0), &far);
    check_post_local(&near, &far);
    train_post_local(nccl, rank, TT_CUDA(rank), &far);
    check_post_local(&near, &far);
    both_leave(&both);
    return 0;
}

static void post_local_sgd_works(void **state) {
    (void)state;
    with_ranks(2, post_local, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_have_the_hosts_bits),
        cmocka_unit_test(nccl_has_the_numbers),
        cmocka_unit_test(post_local_sgd_works),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
