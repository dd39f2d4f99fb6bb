/* Graphs on the CUDA device: replays of a captured step give the bits of the step itself, draw, count and schedule as
 * it does, and leave other tensors alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "cuda_training.h"
#include "unit/expect.h"

enum { STEPS = 20, WARM = 3 };

/* ---- bits ---- */

static tt_optimizer *adamw(const tt_named_tensors *params) { return tt_adamw(params, 0.01, 0.1, .amsgrad = true); }
static tt_optimizer *momentum(const tt_named_tensors *params) { return tt_sgd(params, 0.05, .momentum = 0.9); }
static tt_optimizer *adagrad(const tt_named_tensors *params) { return tt_adagrad(params, 0.05, .lr_decay = 0.1); }

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
    TT_AUTO_SCOPE;
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
    TT_AUTO_SCOPE;
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
    TT_AUTO_SCOPE;
    enum { N = 1 << 16 };
    drawing d = {there(tt_zeros(S(N), TT_F32)), there(tt_zeros(S(N), TT_F32)), NULL};
    const int64_t before = allocated();
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, chain, &d);
    assert_non_null(graph);
    const int64_t kept = allocated() - before;
    assert_true(kept >= 2 * N * 4 && kept < 4 * N * 4); /* what is freed in the capture is used again in it */
    tt_tensor *others[16];
    for (int i = 0; i < 16; i++)
        others[i] = tt_keep(there(tt_scale(tt_ones(S(N), TT_F32), i)));
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

static tt_status write_and_free(void *user) {
    result *r = user;
    tt_status status = tt_copy(r->y, r->x);
    tt_tensor_free(r->y);
    r->y = NULL;
    return status;
}

/* Replays write there. */
static void what_a_capture_frees_is_nobody_elses(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    result r = {there(tt_ones(S(5000), TT_F32)), tt_keep(there(tt_ones(S(5000), TT_F32)))};
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, write_and_free, &r);
    assert_non_null(graph);
    tt_tensor *other = there(tt_zeros(S(5000), TT_F32));
    assert_false(tt_graph_replay(graph));
    assert_true(tt_equal(here(other), tt_zeros(S(5000), TT_F32)));
    tt_graph_free(graph);
}

static tt_status keep_result(void *user) {
    result *r = user;
    tt_tensor_free(r->y);
    r->y = tt_keep(tt_scale(r->x, 3));
    return r->y ? TT_OK : tt_last_status();
}

static void a_kept_result_outlives_its_graph(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
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

/* The first graph's result, which the second writes to and frees, is the second's after the first's end. */
static void a_graph_keeps_what_it_freed_of_another(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const int64_t before = allocated();
    result r = {tt_keep(there(tt_ones(S(5000), TT_F32))), NULL};
    tt_graph *first = tt_graph_capture(TT_CUDA(0), 0, keep_result, &r);
    tt_graph *second = tt_graph_capture(TT_CUDA(0), 0, write_and_free, &r);
    assert_true(first && second);
    tt_graph_free(first);
    {
        TT_AUTO_SCOPE;
        tt_tensor *other = there(tt_zeros(S(5000), TT_F32));
        assert_false(tt_graph_replay(second));
        assert_true(tt_equal(here(other), tt_zeros(S(5000), TT_F32)));
    }
    tt_graph_free(second);
    tt_tensor_free(r.x);
    assert_true(allocated() == before);
}

/* ---- what a replay costs ---- */

static void a_replay_is_one_launch_and_its_numbers(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
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
    TT_AUTO_SCOPE;
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

/* ---- what the host does besides ---- */

/* Begin another device, make pinned memory and free it: nothing of it is the stream's work. */
static tt_status add_and_prepare(void *user) {
    tt_tensor *const *t = user;
    tt_dataset *digits = tt_digits(8, 3);
    tt_loader *loader = tt_loader_new(digits, 4, tt_in_order(), .pin_memory = TT_CUDA(0));
    tt_batch batch;
    bool made = other_device() && tt_loader_next(loader, &batch) == 1;
    tt_loader_free(loader);
    tt_dataset_free(digits);
    return made ? tt_copy(t[1], tt_add(t[0], t[0])) : tt_last_status();
}

static void the_host_may_prepare_what_it_needs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *t[] = {there(tt_full(S(3), TT_F32, 2)), there(tt_zeros(S(3), TT_F32))};
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, add_and_prepare, t);
    if (!graph)
        fail_msg("%s", tt_last_error());
    assert_int_equal(tt_graph_replay(graph), TT_OK);
    assert_true(tt_equal(here(t[1]), tt_full(S(3), TT_F32, 4)));
    tt_graph_free(graph);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_may_prepare_what_it_needs), /* first: it begins a device */
        cmocka_unit_test(replays_give_the_bits_of_steps),
        cmocka_unit_test(a_scaler_steps_beside_the_graph),
        cmocka_unit_test(each_replay_draws_as_a_call_would),
        cmocka_unit_test(a_graph_has_memory_of_its_own),
        cmocka_unit_test(what_a_capture_frees_is_nobody_elses),
        cmocka_unit_test(a_kept_result_outlives_its_graph),
        cmocka_unit_test(a_graph_keeps_what_it_freed_of_another),
        cmocka_unit_test(a_replay_is_one_launch_and_its_numbers),
        cmocka_unit_test(gradients_are_there_as_after_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
