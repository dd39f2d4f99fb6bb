/* Training, all of it in one process: PyTorch DDP's recorded trajectories of two ranks, which are gradients averaged
 * over two batches, and how often a step asks for memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#include "support/reference.h"
#include "tensor/core/tensor.h"
#include "unit/alloc_count.h"
#include "unit/vectors.h"

enum { RANKS = 2 };

static json_t *vectors;

static int load_vectors(void **state) {
    (void)state;
    vectors = vectors_load("ddp-reference.json");
    return vectors ? 0 : -1;
}

static int free_vectors(void **state) {
    (void)state;
    json_decref(vectors);
    return 0;
}

static void assert_close(double got, double want, double relative, double absolute) {
    if (!(fabs(got - want) <= relative * fabs(want) + absolute))
        fail_msg("expected %.9g, got %.9g", want, got);
}

static void assert_numbers(const tt_tensor *x, const json_t *want, double absolute) {
    assert_int_equal(tt_tensor_numel(x), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++)
        assert_close((double)tt_tensor_f32(x)[i], vectors_number(want, i), 0, absolute);
}

typedef struct batch {
    tt_tensor *x, *y;
} batch;

/* One step of two ranks: each scales its gradients by 1/2 and they are summed; loss[r] is rank r's. */
static void averaged_step(tt_module *model, tt_optimizer *sgd, const batch *batches,
                          tt_tensor *(*loss_of)(tt_tensor *, tt_tensor *), double *loss) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(sgd);
    for (int r = 0; r < RANKS; r++) {
        tt_tensor *l = loss_of(tt_module_forward(model, batches[r].x), batches[r].y);
        assert_int_equal(tt_item(l, &loss[r]), TT_OK);
        assert_int_equal(tt_backward(tt_scale(l, 1.0 / RANKS)), TT_OK); /* adds up */
    }
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
}

static tt_tensor *mse_loss(tt_tensor *input, tt_tensor *target) { return tt_mse_loss(input, target); }
static tt_tensor *cross_entropy(tt_tensor *logits, tt_tensor *target) { return tt_cross_entropy(logits, target); }

/* ---- toy_linear10: rank r draws its data from seed r; the parameters are rank 0's ---- */

static void toy_linear10(void **state) {
    (void)state;
    const json_t *toy = json_object_get(vectors, "toy_linear10"), *steps = json_object_get(toy, "steps");
    tt_generator *g[RANKS];
    tt_module *m[RANKS];
    for (int r = 0; r < RANKS; r++) {
        g[r] = tt_generator_new((uint64_t)r);
        m[r] = tt_nn_linear(10, 10, .generator = g[r]);
        const json_t *init = json_array_get(json_object_get(toy, "init_before_ddp"), (size_t)r);
        const tt_named_tensors *p = tt_module_parameters(m[r]);
        assert_numbers(p->tensors[0], json_object_get(init, "weight"), 1e-9);
        assert_numbers(p->tensors[1], json_object_get(init, "bias"), 1e-9);
    }
    const tt_named_tensors *p = tt_module_parameters(m[0]);
    tt_optimizer *sgd = tt_sgd(p, 0.001);
    assert_int_equal(json_array_size(steps), 3);
    for (size_t s = 0; s < 3; s++) {
        TT_AUTO_SCOPE;
        const json_t *want = json_array_get(steps, s);
        batch b[RANKS];
        double loss[RANKS];
        for (int r = 0; r < RANKS; r++) {
            b[r].x = tt_randn(TT_SHAPE(20, 10), g[r]);
            b[r].y = tt_randn(TT_SHAPE(20, 10), g[r]);
        }
        averaged_step(m[0], sgd, b, mse_loss, loss);
        for (size_t r = 0; r < RANKS; r++)
            assert_close(loss[r], vectors_number(json_object_get(want, "loss"), r), 1e-6, 0);
        assert_numbers(tt_grad(p->tensors[0]), json_object_get(json_object_get(want, "grad"), "weight"), 1e-7);
        assert_numbers(tt_grad(p->tensors[1]), json_object_get(json_object_get(want, "grad"), "bias"), 1e-7);
        assert_numbers(p->tensors[0], json_object_get(want, "weight"), 1e-7);
        assert_numbers(p->tensors[1], json_object_get(want, "bias"), 1e-7);
    }
    tt_optimizer_free(sgd);
    for (int r = 0; r < RANKS; r++) {
        tt_module_free(m[r]);
        tt_generator_free(g[r]);
    }
}

/* ---- scalar: weight 2, x = 1, target 1, lr 1: gradient and weight in turn ---- */

static void scalar(void **state) {
    (void)state;
    const json_t *printed = json_object_get(json_object_get(vectors, "scalar"), "printed");
    tt_module *m = tt_nn_linear(1, 1, .no_bias = true);
    tt_tensor *w = tt_module_parameters(m)->tensors[0];
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(m), 1.0);
    tt_tensor_f32(w)[0] = 2;
    for (size_t s = 0; s < 2; s++) {
        TT_AUTO_SCOPE;
        batch b = {tt_ones(TT_SHAPE(1, 1), TT_F32), tt_ones(TT_SHAPE(1, 1), TT_F32)};
        double loss[RANKS];
        averaged_step(m, sgd, (batch[]){b, b}, mse_loss, loss);
        assert_true((double)tt_tensor_f32(tt_grad(w))[0] == vectors_number(printed, 4 * s));
        assert_true((double)tt_tensor_f32(w)[0] == vectors_number(printed, 4 * s + 2));
    }
    tt_optimizer_free(sgd);
    tt_module_free(m);
}

/* ---- mlp_784_512_10: 50 steps, checksums of parameters ---- */

static batch mlp_batch(int64_t step, int64_t rank) {
    batch b = {tt_empty(TT_SHAPE(32, 784), TT_F32), tt_empty(TT_SHAPE(32), TT_I64)};
    for (int64_t k = 0; k < 32; k++) {
        int64_t i = (step * RANKS + rank) * 32 + k;
        for (int64_t j = 0; j < 784; j++)
            tt_tensor_f32(b.x)[k * 784 + j] = (float)((i * 31 + j * 17) % 255) / 255;
        tt_tensor_i64(b.y)[k] = (i * 7 + 3) % 10;
    }
    return b;
}

static void assert_checksums(const tt_tensor *x, const json_t *want, double sum_tolerance, double weighted_tolerance,
                             double element_tolerance) {
    double sum = 0, sum_sq = 0, weighted = 0;
    const float *p = tt_tensor_f32(x);
    int64_t n = tt_tensor_numel(x);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)p[i];
        sum_sq += (double)p[i] * (double)p[i];
        weighted += (double)p[i] * (double)(i % 97 + 1);
    }
    assert_close(sum, vectors_member(want, "sum"), 0, sum_tolerance);
    assert_close(sum_sq, vectors_member(want, "sum_sq"), 1e-6, 0);
    assert_close(weighted, vectors_member(want, "weighted_sum"), 0, weighted_tolerance);
    for (size_t i = 0; i < 6; i++)
        assert_close((double)p[i], vectors_number(json_object_get(want, "first"), i), 0, element_tolerance);
    for (size_t i = 0; i < 4; i++)
        assert_close((double)p[n - 4 + (int64_t)i], vectors_number(json_object_get(want, "last"), i), 0,
                     element_tolerance);
}

static tt_module *new_mlp(void) {
    tt_manual_seed(0);
    return tt_nn_sequential(tt_nn_linear(784, 512), tt_nn_relu(), tt_nn_linear(512, 10));
}

static void mlp_784_512_10(void **state) {
    (void)state;
    const json_t *want = json_object_get(vectors, "mlp_784_512_10"), *losses = json_object_get(want, "losses");
    tt_module *model = new_mlp();
    const tt_named_tensors *p = tt_module_parameters(model);
    tt_optimizer *sgd = tt_sgd(p, 1e-3);
    for (int64_t i = 0; i < p->count; i++)
        assert_checksums(p->tensors[i], json_object_get(json_object_get(want, "init"), p->names[i]), 1e-9, 1e-8, 1e-9);
    for (int s = 0; s < 50; s++) {
        TT_AUTO_SCOPE;
        double loss[RANKS];
        averaged_step(model, sgd, (batch[]){mlp_batch(s, 0), mlp_batch(s, 1)}, cross_entropy, loss);
        for (size_t r = 0; r < RANKS; r++)
            assert_close(loss[r], vectors_number(json_array_get(losses, (size_t)s), r), 1e-6, 0);
        for (int64_t i = 0; i < p->count && s == 0; i++)
            assert_checksums(tt_grad(p->tensors[i]), json_object_get(json_object_get(want, "grad_step0"), p->names[i]),
                             1e-5, 1e-4, 1e-7);
    }
    for (int64_t i = 0; i < p->count; i++)
        assert_checksums(p->tensors[i], json_object_get(json_object_get(want, "final"), p->names[i]),
                         reference_slack() * 5e-7, reference_slack() * 2e-5, 1e-7);
    tt_optimizer_free(sgd);
    tt_module_free(model);
}

/* ---- memory ---- */

static void train_steps(tt_module *model, tt_optimizer *sgd, batch b, int n) {
    for (int i = 0; i < n; i++) {
        TT_AUTO_SCOPE;
        double loss = 0;
        tt_optimizer_zero_grad(sgd);
        tt_tensor *l = tt_cross_entropy(tt_log_softmax(tt_module_forward(model, tt_flatten(b.x, 1)), -1), b.y);
        assert_int_equal(tt_backward(l), TT_OK);
        assert_int_equal(tt_optimizer_step(sgd), TT_OK);
        assert_int_equal(tt_item(l, &loss), TT_OK);
        assert_null(tt_argmax(l, 0)); /* an error on the way changes nothing */
        tt_clear_error();
    }
}

static void a_steady_step_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    tt_module *model = new_mlp();
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 1e-3, .momentum = 0.9);
    batch b = mlp_batch(0, 0);
    train_steps(model, sgd, b, 2);
    long before = alloc_count_own, all = alloc_count;
    train_steps(model, sgd, b, 10);
    long own = alloc_count_own - before;
    print_message("10 steps: %ld allocations of Tutti's, %ld of other libraries'\n", own, alloc_count - all - own);
    assert_int_equal(own, 0);
    tt_tensor_free(b.x);
    tt_tensor_free(b.y);
    tt_optimizer_free(sgd);
    tt_module_free(model);
    assert_true(alloc_count_own > 0); /* it does count */
}

static void two_runs_give_the_same_bits(void **state) {
    (void)state;
    tt_module *model[2] = {new_mlp(), new_mlp()};
    batch b = mlp_batch(0, 0);
    for (int i = 0; i < 2; i++) {
        tt_optimizer *sgd = tt_sgd(tt_module_parameters(model[i]), 0.1);
        train_steps(model[i], sgd, b, 5);
        tt_optimizer_free(sgd);
    }
    for (size_t i = 0; i < 4; i++)
        assert_true(tt_equal(tt_module_parameters(model[0])->tensors[i], tt_module_parameters(model[1])->tensors[i]));
    tt_tensor_free(b.x);
    tt_tensor_free(b.y);
    tt_module_free(model[0]);
    tt_module_free(model[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toy_linear10),
        cmocka_unit_test(scalar),
        cmocka_unit_test(mlp_784_512_10),
        cmocka_unit_test(a_steady_step_allocates_nothing),
        cmocka_unit_test(two_runs_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
