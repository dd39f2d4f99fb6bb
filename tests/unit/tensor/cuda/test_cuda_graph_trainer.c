/* The trainer's .graph: the bits of a run without it, with short batches, clipping, scalers, averages, schedules and
 * evaluations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "unit/expect.h"

enum { EXAMPLES = 100, BATCH = 16, EPOCHS = 2 };

typedef struct run {
    const char *name;
    double clip_norm, lr_gamma, scale;
    tt_dtype autocast;
    bool averages;
} run;

static int calls; /* of the step in training */
static bool adds_metric;

static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    (void)user;
    if (!tt_trainer_evaluating(t)) {
        calls++;
        if (adds_metric && tt_trainer_add_metric(t, "size", 1, b->size))
            return NULL;
    }
    tt_tensor *x = tt_to_device(b->x, TT_CUDA(0)), *y = tt_to_device(b->y, TT_CUDA(0));
    return tt_cross_entropy(tt_module_forward(tt_trainer_model(t), x), y);
}

static tt_module *new_net(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 3, 5, .stride = 3), tt_nn_batch_norm2d(3), tt_nn_relu(), tt_nn_flatten(),
                            tt_nn_dropout(0.3), tt_nn_linear(192, 10));
}

/* Losses of the last epoch and the last evaluation, then parameters and state. */
static tt_tensor *state_after(const run *r, bool graph, tt_trainer_result *result) {
    tt_manual_seed(4);
    tt_module *net = new_net();
    assert_false(tt_module_to_device(net, TT_CUDA(0)));
    tt_optimizer *adam = tt_adam(tt_module_parameters(net), 0.01);
    tt_ema *ema = r->averages ? tt_ema_new(tt_module_parameters(net), 0.9) : NULL;
    tt_lr_scheduler *scheduler = r->lr_gamma != 0 ? tt_exponential_lr(adam, r->lr_gamma) : NULL;
    tt_grad_scaler *scaler = r->scale != 0 ? tt_grad_scaler_new(r->scale, .growth_interval = 3) : NULL;
    tt_dataset *digits = tt_digits(EXAMPLES, 3), *others = tt_digits(40, 8);
    tt_loader *loader = tt_loader_new(digits, BATCH, tt_in_order());
    tt_loader *eval = tt_loader_new(others, 20, tt_in_order());
    calls = 0;
    if (tt_trainer_run(net, adam, loader, step, .epochs = EPOCHS, .eval_loader = eval, .step_seed = 9,
                       .clip_norm = r->clip_norm, .ema = ema, .scheduler = scheduler,
                       .scheduler_when = TT_TRAINER_EACH_STEP, .scaler = scaler, .autocast = r->autocast,
                       .graph = graph, .result = result))
        fail_msg("%s: %s", r->name, tt_last_error());
    const tt_named_tensors *const lists[] = {tt_module_state_dict(net), tt_optimizer_state_dict(adam),
                                             ema ? tt_ema_state_dict(ema) : NULL};
    tt_tensor *all[256];
    int64_t n = 0;
    for (int l = 0; l < 3; l++)
        for (int64_t i = 0; lists[l] && i < lists[l]->count; i++)
            all[n++] = tt_view(tt_to(here(tt_clone(lists[l]->tensors[i])), TT_F64), S(-1));
    tt_tensor *state = tt_cat(all, n, 0);
    tt_loader_free(eval);
    tt_loader_free(loader);
    tt_dataset_free(others);
    tt_dataset_free(digits);
    tt_grad_scaler_free(scaler);
    tt_lr_scheduler_free(scheduler);
    tt_ema_free(ema);
    tt_optimizer_free(adam);
    tt_module_free(net);
    return state;
}

static void runs_have_the_same_bits(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const run runs[] = {{"plain", 0, 0, 0, TT_F32, false},
                               {"clipped, scheduled, averaged", 0.5, 0.95, 0, TT_F32, true},
                               {"bf16", 0, 0, 0, TT_BF16, false},
                               {"f16 with a scaler", 1, 0.9, 0x1p30, TT_F16, true}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        TT_AUTO_SCOPE;
        tt_trainer_result eager, replayed;
        tt_tensor *expected = state_after(&runs[i], false, &eager);
        assert_int_equal(calls, EPOCHS * 7);
        tt_tensor *got = state_after(&runs[i], true, &replayed);
        assert_int_equal(calls, 3 + 1 + EPOCHS); /* before the capture, in it, and the short batches */
        if (!tt_equal(expected, got) || eager.loss != replayed.loss || eager.monitored != replayed.monitored)
            fail_msg("%s: loss %.9g, with .graph %.9g; monitored %.9g, %.9g", runs[i].name, eager.loss, replayed.loss,
                     eager.monitored, replayed.monitored);
    }
    assert_true(cuda_is_real || fake_count("fake_cuda_graphs") == 0);
}

static tt_status run_on(const tt_device *device, int64_t accumulate) {
    tt_module *net = new_net();
    assert_false(tt_module_to_device(net, device));
    tt_optimizer *adam = tt_adam(tt_module_parameters(net), 0.01);
    tt_dataset *digits = tt_digits(EXAMPLES, 3);
    tt_loader *loader = tt_loader_new(digits, BATCH, tt_in_order());
    tt_status status = tt_trainer_run(net, adam, loader, step, .epochs = 1, .graph = true, .accumulate = accumulate);
    tt_loader_free(loader);
    tt_dataset_free(digits);
    tt_optimizer_free(adam);
    tt_module_free(net);
    return status;
}

static void what_it_can_not_do_is_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_true(run_on(TT_CPU, 0) == TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "tt_trainer_run: .graph: expected a model on a device with graphs, as TT_CUDA(0)");
    assert_true(run_on(TT_CUDA(0), 2) == TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_trainer_run: .graph trains alone, a batch a step: leave out .accumulate");
    adds_metric = true;
    assert_true(run_on(TT_CUDA(0), 1) == TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "tt_graph_capture: tt_trainer_add_metric can't be captured in a graph");
    adds_metric = false;
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_have_the_same_bits),
        cmocka_unit_test(what_it_can_not_do_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
