/* Each call of CUDA fails in turn, alone or with all that follow it, in a small training program on the fake of CUDA:
 * an error that names what failed, no crash, no hang, nothing left. After a call that failed alone the process trains
 * as if nothing had been. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_compare.h"

enum { STEPS = 2, SOME = 60, MOST = 3000, SECONDS = 60 };
enum { FAILED_WELL, FAILED_BADLY, TRAINED };

/* Which program: fully connected layers and Adam, one step of what else a device has kernels for, or the first one with
 * steps that a graph repeats. */
static enum { NARROW, WIDE, REPLAYED } program;

static tt_module *new_model(void) {
    if (program == WIDE)
        return tt_nn_sequential(tt_nn_conv2d(1, 3, 3, .padding = 1), tt_nn_batch_norm2d(3), tt_nn_relu(),
                                tt_nn_max_pool2d(2), tt_nn_group_norm(1, 3), tt_nn_flatten(), tt_nn_linear(12, 5));
    return tt_nn_sequential(tt_nn_linear(6, 8), tt_nn_layer_norm(TT_SHAPE(8)), tt_nn_gelu(), tt_nn_dropout(0.5),
                            tt_nn_linear(8, 5));
}

static tt_tensor *narrow_loss(tt_module *model, const tt_device *device, tt_tensor *y) {
    return tt_cross_entropy(tt_module_forward(model, tt_to_device(numbers(5, 6, TT_F32), device)), y);
}

/* Embedding, attention, sums of several kinds. */
static tt_tensor *wide_loss(tt_module *model, const tt_device *device, tt_tensor *y) {
    tt_tensor *table = tt_requires_grad_(tt_to_device(numbers(5, 16, TT_F32), device), true);
    tt_tensor *x = tt_embedding(table, y);
    x = tt_scaled_dot_product_attention(x, x, x, .is_causal = true);
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(model, tt_view(x, S(5, 1, 4, 4))), y);
    loss = tt_add(loss, tt_mse_loss(x, tt_scale(x, 0.5)));
    loss = tt_add(loss, tt_add(tt_norm(x, 2), tt_var(x, 1)));
    return tt_add(
        loss, tt_sum(tt_cat((tt_tensor *const[]){tt_amax(x, .dim = TT_DIMS(0)), tt_mean(x, .dim = TT_DIMS(0))}, 2, 0)));
}

static tt_status train_step(tt_module *model, tt_optimizer *adam, const tt_device *device, double *loss) {
    TT_AUTO_SCOPE;
    tt_tensor *y = tt_to_device(tt_arange(5), device);
    tt_tensor *l = program == WIDE ? wide_loss(model, device, y) : narrow_loss(model, device, y);
    tt_optimizer_zero_grad(adam);
    tt_status status = tt_backward(l);
    status = status ? status : tt_optimizer_step(adam);
    return status ? status : tt_item(l, loss);
}

/* ---- steps that are captured */

typedef struct captured {
    tt_module *model;
    tt_optimizer *adam;
    tt_tensor *x, *y, *loss;
} captured;

static tt_status captured_step(void *user) {
    const captured *c = user;
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(c->model, c->x), c->y);
    tt_optimizer_zero_grad(c->adam);
    if (tt_backward(loss) || tt_optimizer_step(c->adam))
        return tt_last_status();
    return tt_copy(c->loss, tt_detach(loss));
}

static tt_status replay_steps(tt_module *model, tt_optimizer *adam, const tt_device *device, double *loss) {
    TT_AUTO_SCOPE;
    captured c = {.model = model,
                  .adam = adam,
                  .x = tt_to_device(numbers(5, 6, TT_F32), device),
                  .y = tt_to_device(tt_arange(5), device),
                  .loss = tt_to_device(tt_zeros(TT_SCALAR, TT_F32), device)};
    if (!c.x || !c.y || !c.loss)
        return tt_last_status();
    tt_graph *graph = tt_graph_capture(device, 1, captured_step, &c);
    tt_status status = graph ? TT_OK : tt_last_status();
    for (int i = 0; i < STEPS && !status; i++)
        status = tt_graph_replay(graph);
    tt_graph_free(graph);
    return status ? status : tt_item(c.loss, loss);
}

static tt_status train_on(const tt_device *device, double *loss) {
    tt_manual_seed(2);
    tt_module *model = new_model();
    tt_status status = tt_module_to_device(model, device);
    tt_optimizer *adam = status ? NULL : tt_adam(tt_module_parameters(model), 0.01);
    if (program == REPLAYED && !status)
        status = replay_steps(model, adam, device, loss);
    for (int step = 0; program != REPLAYED && step < (program == WIDE ? 1 : STEPS) && !status; step++)
        status = train_step(model, adam, device, loss);
    if (!status)
        status = tt_device_synchronize(device);
    if (!status)
        status = tt_device_empty_cache(device);
    tt_optimizer_free(adam);
    tt_module_free(model);
    return status;
}

/* Is all that was taken given back, and does the driver know of no more than the library? */
static bool nothing_is_left(const tt_device *device) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    void *fake = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*taken)(int);
    *(void **)&taken = dlsym(fake, "fake_memory_taken");
    (void)!tt_device_memory_get(device, &memory); /* the driver may fail, the process's own numbers are there */
    bool left =
        memory.allocated || fake_count("fake_cuda_graphs") || memory.blocks || memory.reserved != (int64_t)taken(0);
    if (left)
        fprintf(stderr, "%lld bytes in %lld blocks are left, %lld are reserved of %zu\n", (long long)memory.allocated,
                (long long)memory.blocks, (long long)memory.reserved, taken(0));
    dlclose(fake);
    return !left;
}

static int run_failing(const char *variable, const char *number, double expected) {
    double loss = 0;
    setenv(variable, number, 1);
    alarm(SECONDS);
    const tt_device *device = tt_device_get("cuda:0");
    tt_status status = device ? train_on(device, &loss) : tt_last_status();
    bool well = status ? strstr(tt_last_error(), "CUDA") || strstr(tt_last_error(), "cuda:0") : loss == expected;
    if (!well || (device && !nothing_is_left(device))) {
        fprintf(stderr, "%s=%s: loss %g, %s: %s\n", variable, number, loss, tt_status_name(status), tt_last_error());
        return FAILED_BADLY;
    }
    if (!status)
        return TRAINED;
    tt_clear_error();
    bool alone = !strcmp(variable, "FAKE_CUDA_FAIL_ONE");
    device = alone && !device ? tt_device_get("cuda:0") : device;
    if (alone && (!device || train_on(device, &loss) || loss != expected || !nothing_is_left(device))) {
        fprintf(stderr, "%s=%s, again: loss %g, %s\n", variable, number, loss, tt_last_error());
        return FAILED_BADLY;
    }
    return FAILED_WELL;
}

static int in_child(const char *variable, int number, double expected) {
    char text[16];
    int status = -1;
    snprintf(text, sizeof text, "%d", number);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(run_failing(variable, text, expected));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fail_msg("%s=%d: signal %d", variable, number, WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* What the last step's loss is: as a child finds it, since this process must not use CUDA. */
static double loss_without_failure(void) {
    double loss = -1;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)!(train_on(TT_CUDA(0), &loss) == TT_OK && write(ends[1], &loss, sizeof loss));
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &loss, sizeof loss), sizeof loss);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return loss;
}

static void fail_in_turn(const char *variable) {
    double expected = loss_without_failure();
    int number = 0, ended;
    do
        ended = in_child(variable, ++number, expected);
    while (ended == FAILED_WELL && number < MOST);
    if (ended != TRAINED || number < SOME)
        fail_msg("%s=%d: the child ended with %d", variable, number, ended);
}

static void every_call_may_fail(void **state) {
    (void)state;
    fail_in_turn("FAKE_CUDA_FAIL_ONE");
}

static void all_later_calls_may_fail(void **state) {
    (void)state;
    fail_in_turn("FAKE_CUDA_FAIL");
}

static void other_kernels_may_fail(void **state) {
    (void)state;
    program = WIDE;
    fail_in_turn("FAKE_CUDA_FAIL_ONE");
}

static void captures_and_replays_may_fail(void **state) {
    (void)state;
    program = REPLAYED;
    fail_in_turn("FAKE_CUDA_FAIL_ONE");
    fail_in_turn("FAKE_CUDA_FAIL");
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    setenv("FAKE_CUDA_SEED", "0", 1); /* no delays */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(all_later_calls_may_fail),
        cmocka_unit_test(other_kernels_may_fail),
        cmocka_unit_test(captures_and_replays_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
