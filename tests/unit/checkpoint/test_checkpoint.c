/* checkpoint: what a training run needs to go on, saved and loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/tutti-checkpoint-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    remove("c");
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

/* A model, its optimizer, and a few steps that give it momentum. */
typedef struct Run {
    tt_module *model;
    tt_optimizer *sgd;
} Run;

static Run make_run(uint64_t seed, double momentum) {
    tt_manual_seed(seed);
    Run r = {.model = tt_nn_sequential(tt_nn_linear(4, 3), tt_nn_relu(), tt_nn_linear(3, 2))};
    r.sgd = tt_sgd(tt_module_parameters(r.model), 0.1, .momentum = momentum);
    assert_non_null(r.sgd);
    return r;
}

static void train(Run *r, int from, int to) {
    for (int step = from; step < to; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_full(TT_SHAPE(5, 4), TT_F32, 0.1 * step + 0.3), *y = tt_ones(TT_SHAPE(5, 2), TT_F32);
        tt_optimizer_zero_grad(r->sgd);
        assert_int_equal(tt_backward(tt_mse_loss(tt_module_forward(r->model, x), y)), TT_OK);
        assert_int_equal(tt_optimizer_step(r->sgd), TT_OK);
    }
}

static void free_run(Run *r) {
    tt_optimizer_free(r->sgd);
    tt_module_free(r->model);
}

static void assert_same(const tt_named_tensors *a, const tt_named_tensors *b) {
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        assert_string_equal(a->names[i], b->names[i]);
        assert_true(tt_equal(a->tensors[i], b->tensors[i]));
    }
}

static void assert_same_runs(Run *a, Run *b) {
    assert_same(tt_module_state_dict(a->model), tt_module_state_dict(b->model));
    assert_same(tt_optimizer_state_dict(a->sgd), tt_optimizer_state_dict(b->sgd));
}

static void names_are_pytorchs(void **state) {
    (void)state;
    Run r = make_run(1, 0.9);
    train(&r, 0, 1);
    assert_int_equal(
        tt_checkpoint_save("c", r.model, r.sgd, &(tt_progress)TT_PROGRESS(.epoch = 7, .sampler_seed = UINT64_MAX)),
        TT_OK);
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_load(&file, "c"), TT_OK);
    static const char *const names[] = {"0.bias",
                                        "0.weight",
                                        "2.bias",
                                        "2.weight",
                                        "optimizer.param_groups.0.dampening",
                                        "optimizer.param_groups.0.lr",
                                        "optimizer.param_groups.0.maximize",
                                        "optimizer.param_groups.0.momentum",
                                        "optimizer.param_groups.0.nesterov",
                                        "optimizer.param_groups.0.params",
                                        "optimizer.param_groups.0.weight_decay",
                                        "optimizer.state.0.momentum_buffer",
                                        "optimizer.state.1.momentum_buffer",
                                        "optimizer.state.2.momentum_buffer",
                                        "optimizer.state.3.momentum_buffer"};
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    assert_int_equal(t->count, 15);
    for (int i = 0; i < 15; i++)
        assert_non_null(tt_named_tensors_find(t, names[i]));
    tt_safetensors_free(file);
    free_run(&r);
}

/* 2 steps, saved, and 2 more in another run = 4 steps in one run. */
static void resumed_training_is_the_same(void **state) {
    (void)state;
    Run whole = make_run(1, 0.9), first = make_run(1, 0.9), second = make_run(99, 0.9);
    train(&whole, 0, 4);
    train(&first, 0, 2);
    assert_int_equal(tt_checkpoint_save("c", first.model, first.sgd,
                                        &(tt_progress)TT_PROGRESS(.epoch = 2, .sampler_seed = UINT64_MAX)),
                     TT_OK);
    tt_progress progress = TT_PROGRESS_INIT;
    assert_int_equal(tt_checkpoint_load("c", second.model, second.sgd, &progress), TT_OK);
    assert_int_equal(progress.epoch, 2);
    assert_true(progress.sampler_seed == UINT64_MAX);
    assert_same_runs(&first, &second);
    train(&second, 2, 4);
    assert_same_runs(&whole, &second);
    free_run(&whole);
    free_run(&first);
    free_run(&second);
}

static void parts_can_be_left_out(void **state) {
    (void)state;
    Run a = make_run(1, 0.9), b = make_run(2, 0.9), plain = make_run(3, 0);
    train(&a, 0, 2);
    assert_int_equal(tt_checkpoint_save("c", a.model, a.sgd, NULL), TT_OK);
    tt_progress progress = TT_PROGRESS(.epoch = 5, .sampler_seed = 5);
    assert_int_equal(tt_checkpoint_load("c", b.model, NULL, &progress), TT_OK);
    assert_int_equal(progress.epoch, 0);
    assert_same(tt_module_state_dict(a.model), tt_module_state_dict(b.model));
    assert_null(tt_named_tensors_find(tt_optimizer_state_dict(b.sgd), "state.0.momentum_buffer"));
    assert_int_equal(tt_checkpoint_save("c", a.model, NULL, NULL), TT_OK);
    train(&b, 0, 1);
    assert_int_equal(tt_checkpoint_load("c", b.model, b.sgd, NULL), TT_OK); /* a file without state ends b's */
    assert_null(tt_named_tensors_find(tt_optimizer_state_dict(b.sgd), "state.0.momentum_buffer"));
    assert_int_equal(tt_checkpoint_load("c", plain.model, plain.sgd, NULL), TT_OK);
    free_run(&a);
    free_run(&b);
    free_run(&plain);
}

/* PyTorch's DDP puts "module." before each name. */
static void a_wrapped_models_names_are_taken(void **state) {
    (void)state;
    Run a = make_run(1, 0), b = make_run(2, 0);
    const tt_named_tensors *t = tt_module_state_dict(a.model);
    static const char *const names[] = {"module.0.weight", "module.0.bias", "module.2.weight", "module.2.bias"};
    assert_int_equal(tt_safetensors_save("c", TT_NAMED_TENSORS(4, names, t->tensors), NULL, 0), TT_OK);
    assert_int_equal(tt_checkpoint_load("c", b.model, b.sgd, NULL), TT_OK);
    assert_same_runs(&a, &b);
    free_run(&a);
    free_run(&b);
}

/* Save `tensors` and expect that loading them into a run fails, and changes nothing. */
static void expect_refused(const tt_named_tensors *tensors, const tt_metadata *metadata, size_t n, tt_status status,
                           const char *text) {
    Run now = make_run(5, 0.9), before = make_run(5, 0.9);
    train(&now, 0, 2);
    train(&before, 0, 2);
    tt_progress progress = TT_PROGRESS(.epoch = 3, .sampler_seed = 4);
    assert_int_equal(tt_safetensors_save("c", tensors, metadata, n), TT_OK);
    assert_int_equal(tt_checkpoint_load("c", now.model, now.sgd, &progress), status);
    assert_non_null(strstr(tt_last_error(), text));
    assert_memory_equal(tt_last_error(), "c: ", 3);
    assert_same_runs(&now, &before);
    assert_int_equal(progress.epoch, 3);
    assert_int_equal(progress.sampler_seed, 4);
    free_run(&now);
    free_run(&before);
}

static void loading_is_all_or_nothing(void **state) {
    (void)state;
    Run a = make_run(1, 0);
    int scope = tt_scope_begin();
    const tt_named_tensors *model = tt_module_state_dict(a.model);
    const char *names[6];
    tt_tensor *tensors[6];
    for (int i = 0; i < 4; i++) {
        names[i] = model->names[i];
        tensors[i] = model->tensors[i];
    }
    const tt_named_tensors *t = TT_NAMED_TENSORS(4, names, tensors), *one_more = TT_NAMED_TENSORS(5, names, tensors);
    const tt_metadata bad_epoch = {"tutti.epoch", "-1"}, bad_seed = {"tutti.sampler_seed", "18446744073709551616"};
    expect_refused(t, &bad_epoch, 1, TT_ERR_FORMAT, "tutti.epoch");
    expect_refused(t, &bad_seed, 1, TT_ERR_FORMAT, "tutti.sampler_seed");
    names[4] = "optimizer.state.0.momentum_buffer";
    tensors[4] = tt_ones(TT_SHAPE(3, 3), TT_F32);
    expect_refused(one_more, NULL, 0, TT_ERR_SHAPE, "momentum_buffer");
    names[4] = "4.weight";
    expect_refused(one_more, NULL, 0, TT_ERR_NOT_FOUND, "4.weight");
    expect_refused(TT_NAMED_TENSORS(3, names, tensors), NULL, 0, TT_ERR_NOT_FOUND, names[3]);
    tensors[3] = tt_ones(TT_SHAPE(1), TT_F32);
    expect_refused(t, NULL, 0, TT_ERR_SHAPE, names[3]);
    tensors[3] = tt_zeros(tt_tensor_shape(model->tensors[3]), TT_F64);
    expect_refused(t, NULL, 0, TT_ERR_DTYPE, names[3]);
    tt_scope_end(scope);
    free_run(&a);
}

/* All that a run is made of. */
typedef struct Whole {
    Run run;
    tt_lr_scheduler *scheduler;
    tt_ema *ema;
    tt_grad_scaler *scaler;
} Whole;

static Whole make_whole(uint64_t seed) {
    Whole w = {.run = make_run(seed, 0.9)};
    w.scheduler = tt_cosine_annealing_lr(w.run.sgd, 7, .eta_min = 0.01);
    w.ema = tt_ema_new(tt_module_parameters(w.run.model), 0.9);
    w.scaler = tt_grad_scaler_new(16, .growth_interval = 3);
    return w;
}

static void train_whole(Whole *w, int from, int to) {
    for (int step = from; step < to; step++) {
        train(&w->run, step, step + 1);
        assert_int_equal(tt_lr_scheduler_step(w->scheduler), TT_OK);
        assert_int_equal(tt_ema_update(w->ema), TT_OK);
        assert_int_equal(tt_grad_scaler_unscale_(w->scaler, w->run.sgd), TT_OK);
        assert_int_equal(tt_grad_scaler_update(w->scaler), TT_OK);
    }
}

static void assert_same_wholes(Whole *a, Whole *b) {
    assert_same_runs(&a->run, &b->run);
    assert_same(tt_lr_scheduler_state_dict(a->scheduler), tt_lr_scheduler_state_dict(b->scheduler));
    assert_same(tt_ema_state_dict(a->ema), tt_ema_state_dict(b->ema));
    assert_same(tt_grad_scaler_state_dict(a->scaler), tt_grad_scaler_state_dict(b->scaler));
}

static void free_whole(Whole *w) {
    tt_lr_scheduler_free(w->scheduler);
    tt_ema_free(w->ema);
    tt_grad_scaler_free(w->scaler);
    free_run(&w->run);
}

static void scheduler_and_averages_go_on(void **state) {
    (void)state;
    Whole whole = make_whole(1), first = make_whole(1), second = make_whole(99);
    train_whole(&whole, 0, 9);
    train_whole(&first, 0, 4);
    assert_int_equal(tt_checkpoint_save("c", first.run.model, first.run.sgd, &(tt_progress)TT_PROGRESS(.epoch = 4),
                                        .scheduler = first.scheduler, .ema = first.ema, .scaler = first.scaler),
                     TT_OK);
    tt_progress progress = TT_PROGRESS_INIT;
    assert_int_equal(tt_checkpoint_load("c", second.run.model, second.run.sgd, &progress, .scheduler = second.scheduler,
                                        .ema = second.ema, .scaler = second.scaler),
                     TT_OK);
    assert_same_wholes(&first, &second);
    train_whole(&second, 4, 9);
    assert_same_wholes(&whole, &second);
    Run plain = make_run(5, 0.9); /* who has none leaves them where they are */
    assert_int_equal(tt_checkpoint_load("c", plain.model, plain.sgd, NULL), TT_OK);
    assert_same_runs(&plain, &first.run);
    free_run(&plain);
    free_whole(&whole);
    free_whole(&first);
    free_whole(&second);
}

/* What can't be loaded into the last part changes none. */
static void a_part_that_is_missing_is_refused(void **state) {
    (void)state;
    Whole now = make_whole(5), before = make_whole(5);
    Run other = make_run(9, 0.9);
    train_whole(&now, 0, 2);
    train_whole(&before, 0, 2);
    train(&other, 0, 1);
    assert_int_equal(tt_checkpoint_save("c", other.model, other.sgd, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_load("c", now.run.model, now.run.sgd, NULL, .scheduler = now.scheduler),
                     TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "c: tt_lr_scheduler_load_state_dict: expected the 5 entries of a "
                                            "tt_cosine_annealing_lr of 1 groups, got 0"));
    assert_int_equal(tt_checkpoint_load("c", now.run.model, now.run.sgd, NULL, .ema = now.ema), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "expected \"n_averaged\" and 4 averages, got 0 entries"));
    assert_int_equal(tt_checkpoint_load("c", now.run.model, now.run.sgd, NULL, .scaler = now.scaler), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "expected 5 entries, got 0"));
    assert_same_wholes(&now, &before);
    tt_clear_error();
    free_run(&other);
    free_whole(&now);
    free_whole(&before);
}

/* A linear layer in `dtype`, with a buffer of each element type that is no parameter's. */
static tt_module *make_narrow(tt_dtype dtype, double value) {
    static const tt_dtype types[] = {TT_F16, TT_BF16, TT_I8, TT_I16, TT_U8, TT_BOOL};
    tt_module *m = tt_nn_linear(4, 3);
    assert_int_equal(tt_module_to(m, dtype), TT_OK);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(tt_module_register_buffer(m, tt_dtype_name(types[i]), tt_full(TT_SHAPE(3), types[i], value)),
                         TT_OK);
    return m;
}

/* What a module holds comes back bit by bit, whatever its types; nothing is converted. */
static void every_element_type_comes_back(void **state) {
    (void)state;
    tt_manual_seed(3);
    tt_module *a = make_narrow(TT_BF16, 1), *b = make_narrow(TT_BF16, 0), *wide = make_narrow(TT_F32, 0);
    assert_int_equal(tt_checkpoint_save("c", a, NULL, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_load("c", b, NULL, NULL), TT_OK);
    assert_same(tt_module_state_dict(a), tt_module_state_dict(b));
    assert_int_equal(tt_tensor_dtype(tt_named_tensors_find(tt_module_state_dict(b), "weight")), TT_BF16);
    assert_int_equal(tt_checkpoint_load("c", wide, NULL, NULL), TT_ERR_DTYPE);
    assert_non_null(strstr(tt_last_error(), "\"bias\": expected f32 (3), got bf16 (3)"));
    assert_int_equal(tt_module_to(wide, TT_BF16), TT_OK);
    assert_int_equal(tt_checkpoint_load("c", wide, NULL, NULL), TT_ERR_DTYPE); /* its buffer "f16" is bf16 now */
    assert_non_null(strstr(tt_last_error(), "\"f16\": expected bf16 (3), got f16 (3)"));
    tt_module_free(a);
    tt_module_free(b);
    tt_module_free(wide);
}

static void confusing_names_are_refused(void **state) {
    (void)state;
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Odd", .forward = tt_module_forward);
    tt_module *m = tt_module_new(&cls, NULL);
    assert_int_equal(tt_module_add_module(m, "optimizer", tt_nn_linear(1, 1)), TT_OK);
    remove("c");
    assert_int_equal(tt_checkpoint_save("c", m, NULL, NULL), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "optimizer.weight"));
    assert_int_equal(access("c", F_OK), -1);
    assert_int_equal(tt_checkpoint_load("c", m, NULL, NULL), TT_ERR_IO);
    assert_int_equal(tt_checkpoint_save("c", NULL, NULL, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_checkpoint_load(NULL, m, NULL, NULL), TT_ERR_INVALID);
    tt_module_free(m);
}

static tt_status fail_silently(void *user, const tt_named_tensors *more) {
    (void)user;
    (void)more;
    return TT_ERR_STATE;
}

static void a_failing_load_more_is_an_error(void **state) {
    (void)state;
    tt_module *m = tt_nn_linear(1, 1);
    assert_int_equal(tt_checkpoint_save("c", m, NULL, NULL), TT_OK);
    tt_clear_error();
    assert_int_equal(tt_checkpoint_load("c", m, NULL, NULL, .load_more = fail_silently), TT_ERR_STATE);
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "c: .load_more: "));
    tt_module_free(m);
    remove("c");
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_pytorchs),
        cmocka_unit_test(resumed_training_is_the_same),
        cmocka_unit_test(parts_can_be_left_out),
        cmocka_unit_test(a_wrapped_models_names_are_taken),
        cmocka_unit_test(loading_is_all_or_nothing),
        cmocka_unit_test(confusing_names_are_refused),
        cmocka_unit_test(scheduler_and_averages_go_on),
        cmocka_unit_test(a_part_that_is_missing_is_refused),
        cmocka_unit_test(every_element_type_comes_back),
        cmocka_unit_test(a_failing_load_more_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
