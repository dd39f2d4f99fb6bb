/* Graphs on the CUDA device: replays of a captured step give the bits of the step itself, draw, count and schedule as it
 * does, and leave other tensors alone; what can't be repeated is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_compare.h"
#include "expect.h"

enum { STEPS = 20, WARM = 3, BATCH = 8, FEATURES = 64 };

/* ---- a training program, whose step is a function of static tensors ---- */

typedef struct training {
    tt_module *model;
    tt_optimizer *optimizer;
    tt_grad_scaler *scaler;
    tt_tensor *x, *y, *loss; /* static */
    tt_dtype autocast;       /* TT_F32: none */
} training;

typedef struct program {
    const char *name;
    tt_module *(*model)(void);
    tt_optimizer *(*optimizer)(const tt_named_tensors *params);
    double lr_gamma; /* of a scheduler; 0: none */
    tt_dtype autocast;
    double scale; /* of a scaler, which steps outside of the graph; 0: none */
} program;

static tt_module *mlp(void) {
    return tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(FEATURES, 32), tt_nn_dropout(0.3), tt_nn_layer_norm(S(32)),
                            tt_nn_gelu(), tt_nn_dropout(0.5), tt_nn_linear(32, 5));
}

static tt_module *conv_net(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3, .padding = 1), tt_nn_batch_norm2d(4), tt_nn_relu(),
                            tt_nn_max_pool2d(2), tt_nn_flatten(), tt_nn_dropout(0.25), tt_nn_linear(64, 5));
}

static tt_optimizer *adam(const tt_named_tensors *params) { return tt_adam(params, 0.01); }
static tt_optimizer *adamw(const tt_named_tensors *params) { return tt_adamw(params, 0.01, 0.1, .amsgrad = true); }
static tt_optimizer *momentum(const tt_named_tensors *params) { return tt_sgd(params, 0.05, .momentum = 0.9); }
static tt_optimizer *adagrad(const tt_named_tensors *params) { return tt_adagrad(params, 0.05, .lr_decay = 0.1); }

static tt_tensor *forward(training *t) {
    int before = t->autocast == TT_F32 ? 0 : tt_autocast_begin(t->autocast);
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(t->model, t->x), t->y);
    if (t->autocast != TT_F32)
        tt_autocast_end(before);
    return loss;
}

/* The whole step; with a scaler all but the optimizer's. */
static tt_status step(void *user) {
    training *t = user;
    tt_tensor *loss = forward(t);
    tt_optimizer_zero_grad(t->optimizer);
    if (tt_backward(t->scaler ? tt_grad_scaler_scale(t->scaler, loss) : loss) ||
        (!t->scaler && tt_optimizer_step(t->optimizer)))
        return tt_last_status();
    return tt_copy(t->loss, tt_detach(loss));
}

static void begin(training *t, const program *p) {
    tt_manual_seed(5);
    *t = (training){.model = p->model(), .autocast = p->autocast};
    assert_false(tt_module_to_device(t->model, TT_CUDA(0)));
    t->optimizer = p->optimizer(tt_module_parameters(t->model));
    t->scaler = p->scale != 0 ? tt_grad_scaler_new(p->scale, .growth_interval = 4) : NULL;
    t->x = tt_keep(there(tt_zeros(S(BATCH, 1, 8, 8), TT_F32)));
    t->y = tt_keep(there(tt_zeros(S(BATCH), TT_I64)));
    t->loss = tt_keep(there(tt_zeros(TT_SCALAR, TT_F32)));
    assert_true(t->model && t->optimizer && t->x && t->y && t->loss);
}

static void end(training *t) {
    tt_tensor_free(t->x);
    tt_tensor_free(t->y);
    tt_tensor_free(t->loss);
    tt_grad_scaler_free(t->scaler);
    tt_optimizer_free(t->optimizer);
    tt_module_free(t->model);
}

/* Batch i, the same in each run. */
static void put_batch(training *t, int i) {
    TT_AUTO_SCOPE;
    tt_generator *g = tt_generator_new((uint64_t)i + 1);
    tt_tensor *x = tt_randn(S(BATCH, 1, 8, 8), g), *y = tt_randint(0, 5, S(BATCH), g);
    assert_false(tt_copy(t->x, x) || tt_copy(t->y, y));
    tt_generator_free(g);
}

static void after_step(training *t, tt_lr_scheduler *scheduler) {
    if (t->scaler && (tt_grad_scaler_step(t->scaler, t->optimizer) || tt_grad_scaler_update(t->scaler)))
        fail_msg("the scaler: %s", tt_last_error());
    if (scheduler)
        assert_false(tt_lr_scheduler_step(scheduler));
}

/* Train, from step WARM on by replays if `replays`. Losses, and parameters and state one behind the other. */
static tt_tensor *train(const program *p, bool replays, double *loss, double *scale) {
    training t;
    begin(&t, p);
    tt_graph *graph = NULL;
    tt_lr_scheduler *scheduler = p->lr_gamma != 0 ? tt_exponential_lr(t.optimizer, p->lr_gamma) : NULL;
    for (int i = 0; i < STEPS; i++) {
        TT_AUTO_SCOPE;
        put_batch(&t, i);
        if (replays && i == WARM && !(graph = tt_graph_capture(TT_CUDA(0), 0, step, &t)))
            fail_msg("%s: %s", p->name, tt_last_error());
        if ((graph ? tt_graph_replay(graph) : step(&t)) || tt_item(t.loss, &loss[i]))
            fail_msg("%s, step %d: %s", p->name, i, tt_last_error());
        after_step(&t, scheduler);
    }
    *scale = tt_grad_scaler_get_scale(t.scaler);
    const tt_named_tensors *const lists[] = {tt_module_state_dict(t.model), tt_optimizer_state_dict(t.optimizer)};
    tt_tensor *all[256];
    int64_t n = 0;
    for (int l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l]->count; i++)
            all[n++] = tt_view(tt_to(here(tt_clone(lists[l]->tensors[i])), TT_F64), S(-1));
    tt_tensor *state = tt_cat(all, n, 0);
    tt_graph_free(graph);
    tt_lr_scheduler_free(scheduler);
    end(&t);
    return state;
}

static void expect_same_bits(const program *p) {
    TT_AUTO_SCOPE;
    double eager[STEPS], replayed[STEPS], eager_scale, scale;
    tt_tensor *expected = train(p, false, eager, &eager_scale), *got = train(p, true, replayed, &scale);
    for (int i = 0; i < STEPS; i++)
        if (eager[i] != replayed[i])
            fail_msg("%s, step %d: loss %.9g, replayed %.9g", p->name, i, eager[i], replayed[i]);
    if (!tt_equal(got, expected) || scale != eager_scale)
        fail_msg("%s: parameters or state differ after %d steps", p->name, STEPS);
    assert_true(p->scale == 0 || scale != p->scale);
}

static void replays_give_the_bits_of_steps(void **state) {
    (void)state;
    static const program programs[] = {
        {"an MLP with Adam", mlp, adam, 0, TT_F32, 0},
        {"an MLP with AdamW and a schedule", mlp, adamw, 0.9, TT_F32, 0},
        {"an MLP with momentum", mlp, momentum, 0.8, TT_F32, 0},
        {"an MLP with Adagrad", mlp, adagrad, 0, TT_F32, 0},
        {"a conv net with Adam", conv_net, adam, 0.9, TT_F32, 0},
        {"a conv net in bf16", conv_net, adam, 0, TT_BF16, 0},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        expect_same_bits(&programs[i]);
}

/* The scale grows every four steps, and falls as soon as gradients of f16 overflow. */
static void a_scaler_steps_beside_the_graph(void **state) {
    (void)state;
    static const program programs[] = {{"an MLP in f16", mlp, adam, 0, TT_F16, 1024},
                                       {"a conv net in f16", conv_net, momentum, 0.9, TT_F16, 0x1p40}};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        expect_same_bits(&programs[i]);
}

/* ---- numbers that are drawn ---- */

typedef struct drawing {
    tt_tensor *x, *y;
    tt_generator *generator;
} drawing;

static tt_status draw(void *user) {
    const drawing *d = user;
    return tt_copy(d->y, tt_dropout(d->x, 0.5, true, .generator = d->generator));
}

static void each_replay_draws_as_a_call_would(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_generator *g[2] = {tt_generator_new(3), tt_generator_new(3)};
    drawing d = {there(tt_ones(S(1000), TT_F32)), there(tt_zeros(S(1000), TT_F32)), g[0]};
    tt_tensor *before = NULL;
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 2, draw, &d);
    assert_non_null(graph);
    for (int i = 0; i < 2; i++) /* the warm-ups' */
        (void)tt_generator_random64(g[1]);
    for (int i = 0; i < 5; i++) {
        assert_false(tt_graph_replay(graph));
        tt_tensor *expected = tt_dropout(d.x, 0.5, true, .generator = g[1]), *got = tt_clone(d.y);
        assert_true(tt_equal(here(got), here(expected)));
        assert_false(before && tt_equal(here(got), here(before)));
        before = got;
    }
    tt_graph_free(graph);
    tt_generator_free(g[0]);
    tt_generator_free(g[1]);
}

/* ---- memory ---- */

static int64_t allocated(void) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    assert_false(tt_device_memory_get(TT_CUDA(0), &memory));
    return memory.allocated;
}

/* Large tensors that are needed one after the other, some of them from before the capture. */
static tt_status chain(void *user) {
    const drawing *d = user;
    tt_tensor *x = tt_keep(tt_clone(d->x));
    for (int i = 0; i < 10 && x; i++) {
        tt_tensor *next = tt_keep(tt_add_scalar(x, 1));
        tt_tensor_free(x);
        x = next;
    }
    tt_status status = tt_copy(d->y, x);
    tt_tensor_free(x);
    return status;
}

static void a_graph_has_memory_of_its_own(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    TT_AUTO_SCOPE;
    drawing d = {there(tt_zeros(S(N), TT_F32)), there(tt_zeros(S(N), TT_F32)), NULL};
    const int64_t before = allocated();
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, chain, &d);
    assert_non_null(graph);
    const int64_t kept = allocated() - before;
    assert_true(kept >= 2 * N * 4 && kept < 4 * N * 4); /* what is freed in the capture is used again in it */
    tt_tensor *others[16];
    for (int i = 0; i < 16; i++)
        others[i] = there(tt_scale(tt_ones(S(N), TT_F32), i));
    for (int round = 1; round < 4; round++) {
        assert_false(tt_graph_replay(graph) || tt_copy(d.x, d.y));
        assert_true(tt_equal(here(d.y), tt_scale(tt_ones(S(N), TT_F32), 10 * round)));
    }
    for (int i = 0; i < 16; i++) {
        assert_true(tt_equal(here(others[i]), tt_scale(tt_ones(S(N), TT_F32), i)));
        tt_tensor_free(others[i]);
    }
    tt_graph_free(graph);
    assert_true(allocated() == before);
    assert_false(tt_device_empty_cache(TT_CUDA(0)));
}

typedef struct result {
    tt_tensor *x, *y;
} result;

static tt_status keep_result(void *user) {
    result *r = user;
    tt_tensor_free(r->y);
    r->y = tt_keep(tt_scale(r->x, 3));
    return r->y ? TT_OK : tt_last_status();
}

static void a_kept_result_outlives_its_graph(void **state) {
    (void)state;
    const int64_t before = allocated();
    result r = {tt_keep(there(tt_ones(S(5000), TT_F32))), NULL};
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 1, keep_result, &r);
    assert_non_null(graph);
    assert_false(tt_graph_replay(graph));
    tt_graph_free(graph);
    {
        TT_AUTO_SCOPE;
        tt_tensor *other = there(tt_zeros(S(5000), TT_F32));
        assert_true(tt_equal(here(r.y), tt_scale(tt_ones(S(5000), TT_F32), 3)));
        assert_non_null(other);
    }
    tt_tensor_free(r.y);
    tt_tensor_free(r.x);
    assert_true(allocated() == before);
}

/* ---- what a replay costs ---- */

static void a_replay_is_one_launch_and_its_numbers(void **state) {
    (void)state;
    only_on_the_fake();
    training t;
    begin(&t, &(program){"", mlp, adam, 0, TT_F32, 0});
    put_batch(&t, 0);
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 1, step, &t);
    assert_non_null(graph);
    const unsigned long launches = fake_count("fake_cuda_launches"), waits = fake_count("fake_cuda_waits");
    for (int i = 0; i < 3; i++)
        assert_false(tt_graph_replay(graph));
    assert_int_equal(fake_count("fake_cuda_launches"), launches + 3);
    assert_int_equal(fake_count("fake_cuda_waits"), waits);
    tt_graph_free(graph);
    assert_int_equal(fake_count("fake_cuda_graphs"), 0);
    end(&t);
}

/* ---- gradients between replays ---- */

static tt_status square(void *user) {
    tt_tensor *const *x = user;
    tt_zero_grad(*x);
    return tt_backward(tt_sum(tt_mul(*x, *x)));
}

static tt_status square_and_forget(void *user) {
    tt_tensor *const *x = user;
    tt_status status = tt_backward(tt_sum(tt_mul(*x, *x)));
    tt_zero_grad(*x);
    return status;
}

static tt_status square_onto(void *user) {
    tt_tensor *const *x = user;
    return tt_backward(tt_sum(tt_mul(*x, *x)));
}

static void gradients_are_there_as_after_the_call(void **state) {
    (void)state;
    tt_tensor *x = tt_keep(tt_requires_grad_(there(tt_ones(S(7), TT_F32)), true));
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 1, square, &x);
    tt_graph *forgetting = tt_graph_capture(TT_CUDA(0), 0, square_and_forget, &x);
    assert_null(forgetting); /* it would add to the other's */
    expect_error(TT_ERR_STATE, "tt_graph_capture: tt_backward: f32 (7) has a gradient from before the capture");
    tt_zero_grad(x);
    forgetting = tt_graph_capture(TT_CUDA(0), 0, square_and_forget, &x);
    assert_true(graph && forgetting);
    assert_null(tt_grad(x));
    for (int i = 0; i < 2; i++) {
        TT_AUTO_SCOPE;
        assert_false(tt_graph_replay(graph));
        assert_true(tt_grad(x) && tt_equal(here(tt_grad(x)), tt_scale(tt_ones(S(7), TT_F32), 2)));
        assert_false(square_onto(&x));
        assert_true(tt_equal(here(tt_grad(x)), tt_scale(tt_ones(S(7), TT_F32), 4)));
        assert_false(tt_graph_replay(forgetting));
        assert_null(tt_grad(x));
    }
    tt_graph_free(graph);
    tt_graph_free(forgetting);
    tt_tensor_free(x);
}

/* ---- refusals ---- */

static tt_status read_loss(void *user) {
    training *t = user;
    double value;
    (void)!tt_item(t->loss, &value); /* not even if nobody looks */
    return TT_OK;
}
static tt_status copy_in(void *user) { return tt_copy(((training *)user)->x, tt_zeros(S(BATCH, 1, 8, 8), TT_F32)); }
static tt_status copy_out(void *user) { return here(((training *)user)->x) ? TT_OK : tt_last_status(); }
static tt_status draw_normal(void *user) { return tt_normal_(((training *)user)->x, 0, 1, NULL); }
static tt_status synchronize(void *user) {
    (void)user;
    return tt_device_synchronize(TT_CUDA(0));
}
static tt_status empty_cache(void *user) {
    (void)user;
    return tt_device_empty_cache(TT_CUDA(0));
}
static tt_status clip(void *user) { return tt_clip_grad_norm_(tt_module_parameters(((training *)user)->model), 0.5); }
static tt_status step_scaler(void *user) {
    training *t = user;
    return tt_grad_scaler_step(t->scaler, t->optimizer);
}
static tt_status step_anew(void *user) {
    training *t = user;
    tt_optimizer *other = tt_adam(tt_module_parameters(t->model), 0.1);
    tt_status status = tt_optimizer_step(other);
    tt_optimizer_free(other);
    return status;
}
static tt_status capture_again(void *user) {
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, synchronize, user);
    return graph ? TT_OK : tt_last_status();
}
static tt_status fail_by_itself(void *user) {
    (void)user;
    return tt_backward(tt_add(there(tt_ones(S(2), TT_F32)), NULL));
}
static tt_status take_all_memory(void *user) {
    training *t = user;
    return tt_cat((tt_tensor *const[]){tt_expand(t->x, S(1 << 20, BATCH, 8, 8)), t->x}, 2, 0) ? TT_OK
                                                                                              : tt_last_status();
}

static void what_no_replay_can_do_is_refused(void **state) {
    (void)state;
    static const struct {
        tt_graph_fn function;
        tt_status status;
        const char *text;
    } cases[] = {
        {read_loss, TT_ERR_STATE, "tt_graph_capture: tt_item can't be captured in a graph"},
        {copy_in, TT_ERR_STATE, "tt_graph_capture: tt_copy can't be captured in a graph"},
        {copy_out, TT_ERR_STATE, "tt_graph_capture: tt_to_device can't be captured in a graph"},
        {draw_normal, TT_ERR_STATE, "tt_graph_capture: tt_normal_ can't be captured in a graph"},
        {synchronize, TT_ERR_STATE, "tt_graph_capture: waiting for cuda:0 can't be captured in a graph"},
        {empty_cache, TT_ERR_STATE, "tt_graph_capture: tt_device_empty_cache: waiting for cuda:0 can't be captured"},
        {clip, TT_ERR_STATE, "tt_graph_capture: tt_clip_grad_norm_ can't be captured in a graph"},
        {step_scaler, TT_ERR_STATE, "tt_graph_capture: tt_grad_scaler_step can't be captured in a graph"},
        {step_anew, TT_ERR_STATE, "tt_graph_capture: tt_optimizer_step: parameter 0 has no state yet"},
        {capture_again, TT_ERR_STATE, "tt_graph_capture: tt_graph_capture can't be captured in a graph"},
        {take_all_memory, TT_ERR_SHAPE, ""},
    };
    training t;
    begin(&t, &(program){"", mlp, adam, 0, TT_F32, 8});
    put_batch(&t, 0);
    assert_false(step(&t));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t before = allocated();
        tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, cases[i].function, &t);
        assert_null(graph);
        if (*cases[i].text)
            expect_error(cases[i].status, cases[i].text);
        tt_clear_error();
        assert_true(allocated() == before);
        assert_false(step(&t)); /* the process goes on */
    }
    assert_null(tt_graph_capture(TT_CUDA(0), 0, fail_by_itself, &t));
    assert_false(tt_device_synchronize(TT_CUDA(0)));
    end(&t);
    assert_true(cuda_is_real || fake_count("fake_cuda_graphs") == 0);
}

static void arguments_are_checked(void **state) {
    (void)state;
    assert_null(tt_graph_capture(NULL, 0, step, NULL));
    expect_error(TT_ERR_INVALID, "tt_graph_capture: `device` is NULL");
    assert_null(tt_graph_capture(TT_CUDA(0), 0, NULL, NULL));
    expect_error(TT_ERR_INVALID, "tt_graph_capture: `function` is NULL");
    assert_null(tt_graph_capture(TT_CUDA(0), -1, step, NULL));
    expect_error(TT_ERR_INVALID, "tt_graph_capture: expected at least 0 warm-ups, got -1");
    assert_null(tt_graph_capture(TT_CPU, 3, step, NULL)); /* no warm-up is run */
    expect_error(TT_ERR_UNSUPPORTED, "tt_graph_capture: expected a device with graphs, as TT_CUDA(0), got cpu");
    assert_true(tt_graph_replay(NULL) == TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_graph_replay: the graph is NULL");
    tt_graph_free(NULL);
}

static void a_child_of_fork_has_no_graphs(void **state) {
    (void)state;
    drawing d = {tt_keep(there(tt_ones(S(10), TT_F32))), tt_keep(there(tt_ones(S(10), TT_F32))), NULL};
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 1, draw, &d);
    assert_non_null(graph);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool well = !tt_graph_capture(TT_CUDA(0), 0, draw, &d) && tt_last_status() == TT_ERR_UNSUPPORTED &&
                    strstr(tt_last_error(), "tt_graph_capture: cuda:0 can't be used in this process");
        well = well && tt_graph_replay(graph) == TT_ERR_UNSUPPORTED;
        tt_graph_free(graph);
        _exit(!well);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(tt_graph_replay(graph));
    tt_graph_free(graph);
    tt_tensor_free(d.x);
    tt_tensor_free(d.y);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_give_the_bits_of_steps),
        cmocka_unit_test(a_scaler_steps_beside_the_graph),
        cmocka_unit_test(each_replay_draws_as_a_call_would),
        cmocka_unit_test(a_graph_has_memory_of_its_own),
        cmocka_unit_test(a_kept_result_outlives_its_graph),
        cmocka_unit_test(a_replay_is_one_launch_and_its_numbers),
        cmocka_unit_test(gradients_are_there_as_after_the_call),
        cmocka_unit_test(what_no_replay_can_do_is_refused),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(a_child_of_fork_has_no_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
