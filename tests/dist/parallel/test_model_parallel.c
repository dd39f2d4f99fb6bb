/* A model whose stages are processes or devices: forward and gradients are those of the model in one process. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/far_device.h"
#include "support/ranks.h"

enum { BATCH = 6, IN = 10, HIDDEN = 20, OUT = 5, STEPS = 20 };

static tt_module *front_new(void) {
    tt_manual_seed(1);
    return tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_relu());
}

static tt_module *back_new(void) {
    tt_manual_seed(2);
    return tt_nn_sequential(tt_nn_linear(HIDDEN, HIDDEN), tt_nn_tanh(), tt_nn_linear(HIDDEN, OUT));
}

/* Batch number `number`, of IN inputs or OUT targets; the same on all ranks. */
static tt_tensor *batch(int number, int64_t columns) {
    tt_generator *g = tt_generator_new((uint64_t)(100 + number));
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, columns), g);
    tt_generator_free(g);
    return x;
}

/* The largest difference between two models' parameters. */
static double distance(tt_module *a, tt_module *b) {
    const tt_named_tensors *p = tt_module_parameters(a), *q = tt_module_parameters(b);
    double worst = 0;
    CHECK(p->count == q->count);
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            worst = fmax(worst, fabs((double)tt_tensor_f32(p->tensors[i])[k] - tt_tensor_f32(q->tensors[i])[k]));
    return worst;
}

/* The same model in one process, after STEPS steps of batches first, first + apart, ..., `together` of them a step. */
static void train_whole(tt_module *front, tt_module *back, int together) {
    tt_optimizer *a = tt_sgd(tt_module_parameters(front), 0.1), *b = tt_sgd(tt_module_parameters(back), 0.1);
    for (int s = 0; s < STEPS; s++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(a), tt_optimizer_zero_grad(b);
        for (int k = 0; k < together; k++) {
            tt_tensor *y = tt_module_forward(back, tt_module_forward(front, batch(s * together + k, IN)));
            tt_tensor *loss = tt_mse_loss(y, batch(s * together + k, OUT));
            CHECK_OK(tt_backward(tt_scale(loss, 1.0 / together)));
        }
        CHECK_OK(tt_optimizer_step(a));
        CHECK_OK(tt_optimizer_step(b));
    }
    tt_optimizer_free(a), tt_optimizer_free(b);
}

static void check_against_whole(tt_module *front, tt_module *back, int together) {
    tt_module *f = front_new(), *b = back_new();
    train_whole(f, b, together);
    CHECK(!front || distance(front, f) < 1e-6);
    CHECK(!back || distance(back, b) < 1e-6);
    tt_module_free(f), tt_module_free(b);
}

/* ---- two processes ---- */

static void front_step(tt_module *front, tt_group *group, int number) {
    tt_tensor *h = tt_module_forward(front, batch(number, IN));
    CHECK_OK(tt_backward(tt_send_activation(h, group, 1)));
}

static void back_step(tt_module *back, tt_group *group, int number) {
    tt_tensor *h = tt_recv_activation(group, 0);
    CHECK(h && tt_requires_grad(h) && tt_tensor_size(h, 1) == HIDDEN);
    CHECK_OK(tt_backward(tt_mse_loss(tt_module_forward(back, h), batch(number, OUT))));
    CHECK(!tt_grad(h));
}

static void train_stage(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *stage = rank == 0 ? front_new() : back_new();
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(stage), 0.1);
    for (int s = 0; s < STEPS; s++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(sgd);
        rank == 0 ? front_step(stage, group, s) : back_step(stage, group, s);
        CHECK_OK(tt_optimizer_step(sgd));
    }
    check_against_whole(rank == 0 ? stage : NULL, rank == 1 ? stage : NULL, 1);
    tt_optimizer_free(sgd);
    tt_module_free(stage);
}

/* ---- 2 x 2 ranks: each stage is averaged with its copy ---- */

static void train_replicas(tt_group *world, int rank, void *user) {
    (void)user;
    tt_mesh *mesh = NULL;
    CHECK_OK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {"mp", 2}));
    tt_group *mp = tt_mesh_get_group(mesh, "mp");
    int copy = tt_mesh_get_local_rank(mesh, "dp"), number = tt_get_rank(mp);
    CHECK(rank == 2 * copy + number);
    tt_module *stage = number == 0 ? front_new() : back_new(), *ddp = tt_ddp(stage, tt_mesh_get_group(mesh, "dp"));
    CHECK(ddp);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1);
    for (int s = 0; s < STEPS; s++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(sgd);
        number == 0 ? front_step(ddp, mp, 2 * s + copy) : back_step(ddp, mp, 2 * s + copy);
        CHECK_OK(tt_optimizer_step(sgd));
    }
    check_against_whole(number == 0 ? stage : NULL, number == 1 ? stage : NULL, 2);
    tt_optimizer_free(sgd);
    tt_module_free(ddp), tt_module_free(stage);
    tt_mesh_free(mesh);
}

/* ---- two devices of one process ---- */

static void train_on_devices(const char *second) {
    tt_module *front = front_new(), *back = back_new();
    const tt_device *cpu = tt_device_get("cpu"), *other = tt_device_get(second);
    CHECK_OK(tt_module_to_device(back, other));
    tt_optimizer *a = tt_sgd(tt_module_parameters(front), 0.1), *b = tt_sgd(tt_module_parameters(back), 0.1);
    for (int s = 0; s < STEPS; s++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(a), tt_optimizer_zero_grad(b);
        tt_tensor *h = tt_to_device(tt_module_forward(front, batch(s, IN)), other);
        tt_tensor *y = tt_module_forward(back, h);
        CHECK(tt_tensor_device(y) == other);
        CHECK_OK(tt_backward(tt_mse_loss(y, tt_to_device(batch(s, OUT), other))));
        CHECK_OK(tt_optimizer_step(a));
        CHECK_OK(tt_optimizer_step(b));
    }
    tt_optimizer_free(a), tt_optimizer_free(b);
    CHECK_OK(tt_module_to_device(back, cpu));
    check_against_whole(front, back, 1);
    tt_module_free(front), tt_module_free(back);
}

/* ---- any order, any tensor ---- */

enum { LARGE = 200000 }; /* more than any buffer takes unasked */

/* Both send before either receives, and their backward passes run in other orders. */
static void crossing(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    int peer = 1 - rank;
    tt_tensor *x[2], *sent[2], *got[2];
    for (int i = 0; i < 2; i++) {
        x[i] = tt_requires_grad_(tt_full(TT_SHAPE(LARGE), TT_F32, rank + 1), true);
        sent[i] = tt_send_activation(tt_scale(x[i], i + 1), group, peer);
        CHECK(sent[i]);
    }
    for (int i = 0; i < 2; i++) {
        got[i] = tt_recv_activation(group, peer);
        CHECK(got[i] && tt_tensor_f32(got[i])[LARGE - 1] == (float)((peer + 1) * (i + 1)));
    }
    /* d/dgot of rank + 3 + i times its sum; in one order on one rank, in the other on the other */
    for (int k = 0; k < 2; k++) {
        int i = rank == 0 ? k : 1 - k;
        CHECK_OK(tt_backward(tt_sum(tt_scale(got[i], rank + 3 + i))));
    }
    for (int k = 0; k < 2; k++)
        CHECK_OK(tt_backward(sent[k]));
    for (int i = 0; i < 2; i++)
        CHECK(tt_tensor_f32(tt_grad(x[i]))[LARGE - 1] == (float)((peer + 3 + i) * (i + 1)));
}

/* Without gradients one receives first; what was sent may be changed. */
static void crossing_plain(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_full(TT_SHAPE(20 * LARGE), TT_F32, rank + 1);
    tt_tensor *got = rank ? tt_recv_activation(group, 0) : NULL;
    CHECK(tt_send_activation(x, group, 1 - rank));
    CHECK(tt_fill_(x, 7));
    got = rank ? got : tt_recv_activation(group, 1);
    CHECK(got && !tt_requires_grad(got));
    for (int64_t i = 0; i < 20 * LARGE; i++)
        CHECK(tt_tensor_f32(got)[i] == (float)(2 - rank));
}

/* Bytes that /proc says the process has. */
static int64_t resident(void) {
    long long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%lld %lld", &all, &pages) == 2);
    fclose(f);
    return pages * 4096;
}

/* Results that are never walked don't keep what was sent. */
static void never_walked(tt_group *group, int rank, void *user) {
    (void)user;
    enum { ROUNDS = 60, FLOATS = 1 << 19 };
    int64_t before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        TT_AUTO_SCOPE;
        if (i == 10)
            before = resident();
        tt_tensor *x = rank ? NULL : tt_requires_grad_(tt_ones(TT_SHAPE(FLOATS), TT_F32), true);
        CHECK(rank ? tt_recv_activation(group, 0) : tt_send_activation(tt_scale(x, 2), group, 1));
    }
    CHECK(resident() - before < (int64_t)(ROUNDS - 10) * FLOATS * 4 / 2);
    CHECK_OK(tt_barrier(group)); /* a slow receiver has not taken the last one yet */
}

/* One pass from a loss with what was sent; an activation used twice; two passes over one record. */
static void sender_of_many(tt_group *group) {
    tt_tensor *w = tt_requires_grad_(tt_full(TT_SHAPE(3, 2), TT_F64, 2), true);
    tt_tensor *a = tt_scale(w, 3), *turned = tt_transpose(tt_scale(w, 5), 0, 1);
    tt_tensor *sent = tt_add(tt_send_activation(a, group, 1), tt_send_activation(turned, group, 1, .tag = 7));
    CHECK_OK(tt_backward(sent, .retain_graph = true));
    CHECK(*(double *)tt_tensor_data(tt_grad(w)) == 3 * 4 + 5 * 10);
    CHECK_OK(tt_backward(sent));
    CHECK(*(double *)tt_tensor_data(tt_grad(w)) == 2 * (3 * 4 + 5 * 10));
    tt_tensor *plain = tt_from_data(((int64_t[]){4, 5}), TT_SHAPE(2), TT_I64);
    tt_tensor *zero = tt_send_activation(plain, group, 1);
    CHECK(zero && !tt_requires_grad(zero));
    CHECK(tt_send_activation(tt_detach(tt_zeros(TT_SHAPE(0, 4), TT_BF16)), group, 1));
    TT_NO_GRAD;
    CHECK(tt_send_activation(w, group, 1));
}

static void receiver_of_many(tt_group *group) {
    tt_tensor *b = tt_recv_activation(group, 0, .tag = 7), *a = tt_recv_activation(group, 0);
    CHECK(a && b && tt_tensor_size(b, 0) == 2 && tt_tensor_dtype(b) == TT_F64);
    tt_tensor *y = tt_add(tt_sum(tt_mul(a, tt_add_scalar(a, -8))), tt_sum(tt_scale(b, 10))); /* 2 a - 8 = 4 at a = 6 */
    CHECK_OK(tt_backward(y, .retain_graph = true));
    CHECK_OK(tt_backward(y));
    tt_tensor *plain = tt_recv_activation(group, 0);
    CHECK(plain && !tt_requires_grad(plain) && tt_tensor_i64(plain)[1] == 5);
    tt_tensor *none = tt_recv_activation(group, 0);
    CHECK(none && tt_tensor_numel(none) == 0 && tt_tensor_size(none, 1) == 4 && tt_tensor_dtype(none) == TT_BF16);
    tt_tensor *w = tt_recv_activation(group, 0, .device = tt_device_get("reference"));
    CHECK(w && !tt_requires_grad(w) && tt_tensor_device(w) == tt_device_get("reference"));
}

static void many(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    rank == 0 ? sender_of_many(group) : receiver_of_many(group);
}

/* The gradient goes by the other device and back; a record that is never walked leaves nothing that hurts. */
static void on_another_device(tt_group *group, int rank, void *user) {
    (void)user;
    const tt_device *other = tt_device_get("reference");
    {
        TT_AUTO_SCOPE;
        if (rank == 0) {
            tt_tensor *x = tt_requires_grad_(tt_to_device(tt_ones(TT_SHAPE(LARGE), TT_F32), other), true);
            CHECK(tt_send_activation(tt_scale(x, 2), group, 1));
        } else {
            CHECK(tt_recv_activation(group, 0));
        }
    }
    TT_AUTO_SCOPE;
    if (rank == 0) {
        tt_tensor *x = tt_requires_grad_(tt_to_device(tt_ones(TT_SHAPE(4), TT_F32), other), true);
        CHECK_OK(tt_backward(tt_send_activation(tt_scale(x, 2), group, 1)));
        CHECK(tt_tensor_device(tt_grad(x)) == other &&
              tt_tensor_f32(tt_to_device(tt_grad(x), tt_device_get("cpu")))[3] == 6);
    } else {
        CHECK_OK(tt_backward(tt_sum(tt_scale(tt_recv_activation(group, 0, .device = other), 3))));
    }
}

/* On both sides memory that pointers don't reach. */
static void on_far_devices(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    const tt_device *far = far_device(), *cpu = tt_device_get("cpu");
    CHECK(far);
    if (rank == 0) {
        tt_tensor *x = tt_requires_grad_(tt_to_device(tt_full(TT_SHAPE(2, 3), TT_F32, 5), far), true);
        CHECK_OK(tt_backward(tt_send_activation(tt_relu(x), group, 1)));
        CHECK(tt_tensor_device(tt_grad(x)) == far && tt_tensor_f32(tt_to_device(tt_grad(x), cpu))[5] == 1);
    } else {
        tt_tensor *h = tt_recv_activation(group, 0, .device = far);
        CHECK(tt_tensor_device(h) == far && tt_tensor_f32(tt_to_device(h, cpu))[5] == 5);
        CHECK_OK(tt_backward(tt_sum(tt_relu(h))));
    }
}

/* ---- what is refused ---- */

static void refused(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32);
    CHECK(!tt_send_activation(x, group, rank) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("tt_send_activation: expected another rank of the 2");
    CHECK(!tt_send_activation(x, group, 2) && !tt_recv_activation(group, -1) && !tt_send_activation(x, NULL, 0));
    CHECK(!tt_send_activation(x, group, 1 - rank, .tag = 1 << 30) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_recv_activation(group, 1 - rank, .tag = -1) && !tt_send_activation(NULL, group, 1 - rank));
    double value;
    CHECK(tt_item(NULL, &value) == TT_ERR_INVALID); /* the scope's first error */
    if (rank == 0) {
        const int64_t words[12] = {1};
        CHECK_OK(tt_send(group, words, 12, TT_I64, 1));
        CHECK_OK(tt_send(group, words, 1, TT_I64, 1));
    } else {
        CHECK(!tt_recv_activation(group, 0) && tt_last_status() == TT_ERR_MISMATCH);
        CHECK_TEXT("tt_recv_activation from rank 0: rank 0 sent something else than tt_send_activation() sends");
        CHECK(!tt_recv_activation(group, 0) && tt_last_status() == TT_ERR_MISMATCH);
    }
}

/* A peer that runs no backward pass is named when the time is over. */
static void no_backward(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    if (rank == 0) {
        tt_tensor *x = tt_requires_grad_(tt_ones(TT_SHAPE(2, 3), TT_F32), true);
        tt_tensor *sent = tt_send_activation(x, group, 1, .timeout_ms = 300);
        CHECK(tt_backward(sent) == TT_ERR_TIMEOUT);
        CHECK_TEXT("tt_send_activation: the gradient of f32 (2, 3) from rank 1: ");
    } else {
        CHECK(tt_recv_activation(group, 0));
        int64_t nothing;
        CHECK(tt_recv(group, &nothing, 1, TT_I64, 0, .tag = 9) != TT_OK); /* until rank 0 has had enough */
    }
}

static void test_two_stages(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train_stage, NULL), 0);
}

static void test_replicas(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, train_replicas, NULL), 0);
}

static void test_devices(void **state) {
    (void)state;
    train_on_devices("cpu");
    train_on_devices("reference");
}

static void test_orders(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, crossing, NULL), 0);
    assert_int_equal(run_ranks(2, crossing_plain, NULL), 0);
    setenv("TT_TRANSPORT", "tcp", 1);
    assert_int_equal(run_ranks(2, crossing, NULL), 0);
    assert_int_equal(run_ranks(2, crossing_plain, NULL), 0);
    unsetenv("TT_TRANSPORT");
}

static void test_many(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, many, NULL), 0);
    assert_int_equal(run_ranks(2, never_walked, NULL), 0);
    assert_int_equal(run_ranks(2, on_another_device, NULL), 0);
    assert_int_equal(run_ranks(2, on_far_devices, NULL), 0);
}

static void test_refused_calls(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refused, NULL), 0);
    assert_int_equal(run_ranks(2, no_backward, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_stages), cmocka_unit_test(test_replicas), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_orders),     cmocka_unit_test(test_many),     cmocka_unit_test(test_refused_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
