/* DistributedDataParallel against PyTorch's: the trajectories of tests/vectors/ddp-reference.json on two real ranks. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "base/hash.h"
#include "support/ranks.h"
#include "support/reference.h"

static json_t *reference;

static int load_reference(void **state) {
    (void)state;
    char path[4096];
    const char *source = getenv("TT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/vectors/ddp-reference.json", source ? source : ".");
    reference = json_load_file(path, 0, NULL);
    if (!reference)
        fprintf(stderr, "can't read %s (run this through ctest)\n", path);
    return reference ? 0 : -1;
}

static int free_reference(void **state) {
    (void)state;
    json_decref(reference);
    return 0;
}

static json_t *at(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    if (!value)
        fprintf(stderr, "the reference has no \"%s\"\n", key);
    CHECK(value);
    return value;
}

static double number(json_t *array, size_t i) {
    CHECK(json_is_number(json_array_get(array, i)));
    return json_number_value(json_array_get(array, i));
}

/* |is - expected| <= absolute + relative |expected| */
#define CHECK_NEAR(is, expected, relative, absolute)                             \
    do {                                                                         \
        double is_ = (is), expected_ = (expected);                               \
        if (!(fabs(is_ - expected_) <= (absolute) + (relative)*fabs(expected_))) \
            fprintf(stderr, "%s is %.9g, expected %.9g\n", #is, is_, expected_); \
        CHECK(fabs(is_ - expected_) <= (absolute) + (relative)*fabs(expected_)); \
    } while (0)

static void check_values(const tt_tensor *x, json_t *expected, double absolute) {
    CHECK(json_array_size(expected) == (size_t)tt_tensor_numel(x));
    for (size_t i = 0; i < json_array_size(expected); i++)
        CHECK_NEAR(tt_tensor_f32(x)[i], (float)number(expected, i), 0, absolute);
}

static double item(tt_tensor *x) {
    double value;
    CHECK(tt_item(x, &value) == TT_OK);
    return value;
}

/* ---- Linear(10,10): other weights and other data on each rank */

static void toy_step(tt_module *model, tt_module *ddp, tt_optimizer *sgd, int rank, json_t *expected) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(20, 10), NULL), *y = tt_randn(TT_SHAPE(20, 10), NULL);
    const tt_named_tensors *p = tt_module_parameters(model);
    tt_optimizer_zero_grad(sgd);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(ddp, x), y);
    CHECK(tt_backward(loss) == TT_OK);
    CHECK_NEAR(item(loss), number(at(expected, "loss"), (size_t)rank), 1e-5, 0);
    check_values(tt_grad(p->tensors[0]), at(at(expected, "grad"), "weight"), 1e-6);
    check_values(tt_grad(p->tensors[1]), at(at(expected, "grad"), "bias"), 1e-6);
    CHECK(tt_optimizer_step(sgd) == TT_OK);
    check_values(p->tensors[0], at(expected, "weight"), 1e-6);
    check_values(p->tensors[1], at(expected, "bias"), 1e-6);
}

static void toy_linear10(tt_group *group, int rank, void *user) {
    (void)user;
    json_t *toy = at(reference, "toy_linear10"), *steps = at(toy, "steps");
    tt_manual_seed((uint64_t)rank);
    tt_module *model = tt_nn_linear(10, 10);
    json_t *init = json_array_get(at(toy, "init_before_ddp"), (size_t)rank);
    check_values(tt_module_parameters(model)->tensors[0], at(init, "weight"), 0);
    check_values(tt_module_parameters(model)->tensors[1], at(init, "bias"), 0);
    tt_module *ddp = tt_ddp(model, group);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.001);
    CHECK(ddp && sgd && json_array_size(steps) == 3);
    for (size_t s = 0; s < 3; s++)
        toy_step(model, ddp, sgd, rank, json_array_get(steps, s));
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void toy_trajectory(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, toy_linear10, NULL), 0);
}

/* ---- y = w x from 2 and 200 */

static void scalar(tt_group *group, int rank, void *user) {
    (void)user;
    json_t *printed = at(at(reference, "scalar"), "printed");
    tt_module *model = tt_nn_linear(1, 1, .no_bias = true);
    float *weight = tt_tensor_f32(tt_module_parameters(model)->tensors[0]);
    *weight = rank == 0 ? 2 : 200;
    tt_module *ddp = tt_ddp(model, group);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 1);
    CHECK(*weight == 2);
    for (size_t s = 0; s < 2; s++) {
        TT_AUTO_SCOPE;
        tt_tensor *one = tt_ones(TT_SHAPE(1, 1), TT_F32);
        tt_optimizer_zero_grad(sgd);
        CHECK(tt_backward(tt_mse_loss(tt_module_forward(ddp, one), one)) == TT_OK);
        CHECK(item(tt_grad(tt_module_parameters(model)->tensors[0])) == number(printed, s * 4 + (size_t)rank));
        CHECK(tt_optimizer_step(sgd) == TT_OK);
        CHECK((double)*weight == number(printed, s * 4 + 2 + (size_t)rank));
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void scalar_trajectory(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, scalar, NULL), 0);
}

/* ---- 784-512-10 */

enum { STEPS = 50 };

/* Results of the ranks of one run, for the parent. */
typedef struct Record {
    float loss[2][STEPS];
    uint64_t hash[2][STEPS]; /* of all parameters after the step */
} Record;

/* A run's task, shared by its processes. */
typedef struct Run {
    int batch;
    bool compare; /* with the reference */
    Record record;
} Run;

static Run *shared_run(int batch, bool compare) {
    Run *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    r->batch = batch;
    r->compare = compare;
    return r;
}

/* Examples `first` and on: x (B,784), y (B). */
static void make_batch(tt_tensor *x, tt_tensor *y, int64_t first) {
    for (int64_t k = 0; k < tt_tensor_size(x, 0); k++) {
        for (int64_t j = 0; j < 784; j++)
            tt_tensor_f32(x)[k * 784 + j] = (float)(((first + k) * 31 + j * 17) % 255) / 255;
        tt_tensor_i64(y)[k] = ((first + k) * 7 + 3) % 10;
    }
}

static void check_sums(const tt_tensor *x, json_t *expected, double sum_tolerance, double weighted_tolerance) {
    double sum = 0, squares = 0, weighted = 0;
    int64_t n = tt_tensor_numel(x);
    const float *p = tt_tensor_f32(x);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)p[i];
        squares += (double)p[i] * (double)p[i];
        weighted += (double)p[i] * (double)(i % 97 + 1);
    }
    CHECK_NEAR(sum, json_number_value(at(expected, "sum")), 0, sum_tolerance);
    CHECK_NEAR(squares, json_number_value(at(expected, "sum_sq")), 1e-6, 0);
    CHECK_NEAR(weighted, json_number_value(at(expected, "weighted_sum")), 0, weighted_tolerance);
    for (size_t i = 0; i < 6; i++)
        CHECK_NEAR(p[i], number(at(expected, "first"), i), 0, 1e-6);
    for (size_t i = 0; i < 4; i++)
        CHECK_NEAR(p[(size_t)n - 4 + i], number(at(expected, "last"), i), 0, 1e-6);
}

static void check_parameters(tt_module *model, const char *key, double sum_tolerance, double weighted_tolerance) {
    const tt_named_tensors *p = tt_module_parameters(model);
    json_t *expected = at(at(reference, "mlp_784_512_10"), key);
    CHECK((size_t)p->count == json_object_size(expected));
    for (int64_t i = 0; i < p->count; i++)
        check_sums(!strcmp(key, "grad_step0") ? tt_grad(p->tensors[i]) : p->tensors[i], at(expected, p->names[i]),
                   sum_tolerance, weighted_tolerance);
}

/* Over the parameters' bits. */
static uint64_t hash_parameters(tt_module *model) {
    const tt_named_tensors *p = tt_module_parameters(model);
    uint64_t hash = TT__FNV;
    for (int64_t i = 0; i < p->count; i++) {
        const uint32_t *words = tt_tensor_data(p->tensors[i]);
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            hash = tt__fnv_number(hash, words[k]);
    }
    return hash;
}

static float mlp_step(tt_module *ddp, tt_optimizer *sgd, tt_tensor *x, tt_tensor *y) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(ddp, x), y);
    CHECK(tt_backward(loss) == TT_OK);
    return (float)item(loss);
}

static void mlp(tt_group *group, int rank, void *user) {
    Run *run = user;
    tt_manual_seed(0);
    tt_module *model = tt_nn_sequential(tt_nn_linear(784, 512), tt_nn_relu(), tt_nn_linear(512, 10));
    tt_module *ddp = tt_ddp(model, group);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 1e-3);
    tt_tensor *x = tt_empty(TT_SHAPE(run->batch, 784), TT_F32), *y = tt_empty(TT_SHAPE(run->batch), TT_I64);
    CHECK(ddp && sgd && x && y);
    json_t *losses = at(at(reference, "mlp_784_512_10"), "losses");
    if (run->compare)
        check_parameters(model, "init", 1e-12, 1e-9);
    for (int s = 0; s < STEPS; s++) {
        make_batch(x, y, ((int64_t)s * tt_get_world_size(group) + rank) * run->batch);
        run->record.loss[rank][s] = mlp_step(ddp, sgd, x, y);
        if (run->compare)
            CHECK_NEAR(run->record.loss[rank][s], number(json_array_get(losses, (size_t)s), (size_t)rank), 1e-5, 0);
        if (run->compare && s == 0)
            check_parameters(model, "grad_step0", 1e-5, 1e-4);
        CHECK(tt_optimizer_step(sgd) == TT_OK);
        run->record.hash[rank][s] = hash_parameters(model);
    }
    if (run->compare)
        check_parameters(model, "final", reference_slack() * 5e-7, reference_slack() * 2e-5);
    tt_tensor_free(x);
    tt_tensor_free(y);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void mlp_trajectory(void **state) {
    (void)state;
    Run *run = shared_run(32, true);
    assert_int_equal(run_ranks(2, mlp, run), 0);
    assert_memory_equal(run->record.hash[0], run->record.hash[1], sizeof run->record.hash[0]);
    munmap(run, sizeof *run);
}

static void the_same_run_gives_the_same_bits(void **state) {
    (void)state;
    Run *first = shared_run(32, false), *second = shared_run(32, false);
    assert_int_equal(run_ranks(2, mlp, first), 0);
    assert_int_equal(run_ranks(2, mlp, second), 0);
    assert_memory_equal(&first->record, &second->record, sizeof first->record);
    munmap(first, sizeof *first);
    munmap(second, sizeof *second);
}

static void two_ranks_of_32_learn_as_one_of_64(void **state) {
    (void)state;
    Run *two = shared_run(32, false), *one = shared_run(64, false);
    assert_int_equal(run_ranks(2, mlp, two), 0);
    assert_int_equal(run_ranks(1, mlp, one), 0);
    for (int s = 0; s < STEPS; s++) {
        double mean = ((double)two->record.loss[0][s] + (double)two->record.loss[1][s]) / 2;
        double alone = (double)one->record.loss[0][s];
        if (fabs(mean - alone) > 1e-5 * alone)
            fail_msg("step %d: two ranks %.9g, one rank %.9g", s, mean, alone);
    }
    munmap(two, sizeof *two);
    munmap(one, sizeof *one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toy_trajectory),
        cmocka_unit_test(scalar_trajectory),
        cmocka_unit_test(mlp_trajectory),
        cmocka_unit_test(the_same_run_gives_the_same_bits),
        cmocka_unit_test(two_ranks_of_32_learn_as_one_of_64),
    };
    return cmocka_run_group_tests(tests, load_reference, free_reference);
}
