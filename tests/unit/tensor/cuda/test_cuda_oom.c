/* The device's memory runs out in a forward pass, in a backward pass, in an optimizer's first step and in a capture: an
 * error that says so, nothing is left, and the same step trains where there is room again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"

enum { BATCH = 64, WIDTH = 64, MIB = 1 << 20, DEVICE = 32 * MIB, PIECE = 16 << 10 };

/* What ran out of memory. */
enum { WRAPPED, FORWARD, BACKWARD, STEPPED, CAPTURED, PLACES };
static const char *const places[] = {"moving the model", "the forward pass", "the backward pass",
                                     "the optimizer's step", "the capture"};

typedef struct job {
    tt_module *model;
    tt_optimizer *adam;
    tt_tensor *x, *y;
    int place; /* where the last step is, or failed */
    double loss;
} job;

static tt_status train_step(void *user) {
    job *j = user;
    j->place = FORWARD;
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(j->model, j->x), j->y);
    if (!loss)
        return tt_last_status();
    tt_optimizer_zero_grad(j->adam);
    j->place = BACKWARD;
    if (tt_backward(loss))
        return tt_last_status();
    j->place = STEPPED;
    return tt_optimizer_step(j->adam);
}

static tt_status prepare(job *j) {
    tt_manual_seed(3);
    j->place = WRAPPED;
    j->model = tt_nn_sequential(tt_nn_linear(WIDTH, WIDTH), tt_nn_gelu(), tt_nn_linear(WIDTH, 2 * WIDTH), tt_nn_tanh(),
                                tt_nn_linear(2 * WIDTH, 10));
    tt_status status = tt_module_to_device(j->model, TT_CUDA(0));
    if (status)
        return status;
    j->adam = tt_adam(tt_module_parameters(j->model), 1e-2);
    j->x = there(numbers(BATCH, WIDTH, TT_F32));
    j->y = there(tt_zeros(S(BATCH), TT_I64));
    return j->adam && j->x && j->y ? TT_OK : tt_last_status();
}

/* Two steps, or one and one that is captured. */
static tt_status train(job *j, bool captures) {
    TT_AUTO_SCOPE;
    memset(j, 0, sizeof *j);
    tt_status status = prepare(j);
    if (!status)
        status = train_step(j);
    if (!status && captures) {
        tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, train_step, j);
        if (!graph)
            j->place = CAPTURED;
        status = graph ? tt_graph_replay(graph) : tt_last_status();
        tt_graph_free(graph);
    } else if (!status) {
        status = train_step(j);
    }
    if (!status)
        status = tt_item(tt_sum(tt_module_parameters(j->model)->tensors[0]), &j->loss);
    tt_optimizer_free(j->adam);
    tt_module_free(j->model);
    return status;
}

static tt_device_memory memory_now(void) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    assert_int_equal(tt_device_memory_get(TT_CUDA(0), &memory), TT_OK);
    return memory;
}

/* Leave `room` bytes. What runs out then? */
static int run_out(size_t room, double right, bool captures) {
    job j;
    int scope = tt_scope_begin();
    tt_tensor *held = tt_keep(there(tt_empty(S(DEVICE - (int64_t)room), TT_U8)));
    tt_scope_end(scope);
    assert_non_null(held);
    const tt_device_memory before = memory_now();
    tt_status status = train(&j, captures);
    if (status) {
        assert_int_equal(status, TT_ERR_MEMORY);
        if (!strstr(tt_last_error(), "cuda:0 is out of memory: ") || !strstr(tt_last_error(), "were asked for"))
            fail_msg("%zu bytes, %s: %s", room, places[j.place], tt_last_error());
    }
    assert_int_equal(memory_now().allocated, before.allocated);
    tt_tensor_free(held);
    if (status) {
        const int place = j.place;
        if (train(&j, captures))
            fail_msg("after %s ran out: %s", places[place], tt_last_error());
        j.place = place;
    }
    assert_true(j.loss == right);
    return status ? j.place : PLACES;
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    bool seen[PLACES + 1] = {false};
    for (int captures = 0; captures < 2; captures++) {
        job j;
        int place = 0;
        assert_int_equal(train(&j, captures), TT_OK);
        const double right = j.loss;
        for (size_t room = PIECE; place < PLACES && room < 4 * MIB; room += PIECE)
            seen[place = run_out(room, right, captures)] = true;
        assert_int_equal(place, PLACES);
    }
    for (int place = 0; place < PLACES; place++)
        if (!seen[place])
            fail_msg("no memory ever ran out in %s", places[place]);
}

int main(void) {
    setenv("FAKE_CUDA_MEMORY", "32", 1);
    if (!cuda_choose() || cuda_is_real)
        return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_may_run_out_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
