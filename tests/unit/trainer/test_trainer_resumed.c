/* The trainer in one process: resumed inside epochs, from the loader's state, mixed precision, other locales; what
 * looks like a kept checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "models/causal_lm.h"
#include "support/locales.h"
#include "support/own_folder.h"
#include "support/trainer_cases.h"

static void make(trainer_case *c, int64_t batch_size) { assert_int_equal(case_make(c, 0, 1, batch_size), TT_OK); }

static tt_status run_to(trainer_case *c, int64_t max_steps, const char *checkpoint, const char *resume) {
    return tt_trainer_run(c->model, c->optimizer, c->loader, case_step, .sampler = c->sampler, .epochs = 3,
                          .max_steps = max_steps, .accumulate = 2, .clip_norm = 0.5, .scheduler = c->scheduler,
                          .step_seed = 5, .checkpoint = checkpoint, .resume = resume, .eval_loader = c->eval_loader);
}

/* ---- the loader's state, other batches ---- */

static atomic_int reads;

static tt_status count_reads(void *user, int64_t index, void *x, void *y) {
    tt_generator *g = tt_generator_new((uint64_t)index);
    (void)user;
    if (!g)
        return tt_last_status();
    for (int i = 0; i < 6; i++)
        ((float *)x)[i] = (float)tt_generator_random(g) / 4e9f;
    *(int64_t *)y = index % 3;
    tt_generator_free(g);
    reads++;
    return TT_OK;
}

enum { ORDERED, RANDOM, OWN_BATCHES, LOADERS };

/* Ten batches of 3 or 4 of the 37 examples. */
static tt_status fill_in_turn(void *user, int64_t epoch, int64_t *indices, int64_t n, int64_t *sizes, int64_t batches) {
    tt_generator *g = tt_generator_new(*(const uint64_t *)user + (uint64_t)epoch);
    if (!g)
        return tt_last_status();
    tt_randperm(indices, n, g);
    tt_generator_free(g);
    for (int64_t i = 0; i < batches; i++)
        sizes[i] = 3 + (i % 10 < 7);
    return TT_OK;
}

static void other_loader(trainer_case *c, int kind, int workers) {
    static const uint64_t seed = 77;
    make(c, 4);
    tt_loader_free(c->loader);
    tt_dataset_free(c->data);
    c->data =
        tt_dataset_from(CASE_EXAMPLES, count_reads, tt_spec(TT_F32, TT_SHAPE(6)), .y = tt_spec(TT_I64, TT_SCALAR));
    if (kind == ORDERED) {
        c->loader = tt_loader_new(c->data, 4, c->sampler, .workers = workers);
        return;
    }
    tt_sampler_free(c->sampler);
    c->sampler = kind == RANDOM ? tt_random_sampler(CASE_EXAMPLES)
                                : tt_batch_sampler_from(CASE_EXAMPLES, 10, 4, fill_in_turn, .user = (void *)&seed);
    c->loader = kind == RANDOM ? tt_loader_new(c->data, 4, c->sampler, .workers = workers)
                               : tt_loader_new(c->data, 0, NULL, .batch_sampler = c->sampler, .workers = workers);
}

/* In mid-epoch, with other numbers of workers; what was trained on is not read again. */
static void test_resumed_loaders(void **state) {
    (void)state;
    for (int kind = 0; kind < LOADERS; kind++) {
        trainer_case whole;
        other_loader(&whole, kind, 0);
        assert_int_equal(run_to(&whole, 0, "whole", NULL), TT_OK);
        for (int64_t k = 1; k <= 14; k++) {
            trainer_case first, second;
            other_loader(&first, kind, k % 3);
            assert_int_equal(run_to(&first, k, "part", NULL), TT_OK);
            case_free(&first); /* whose workers read ahead */
            other_loader(&second, kind, (k + 1) % 3);
            reads = 0;
            assert_int_equal(run_to(&second, 0, NULL, "part"), TT_OK);
            assert_true(k % 5 == 0 || reads <= 3 * CASE_EXAMPLES - 8 * (int)k + 8);
            /* between epochs nobody has drawn a random sampler's order yet */
            assert_true((kind == RANDOM && k % 5 == 0) || case_equal(&whole, &second));
            case_free(&second);
        }
        case_free(&whole);
    }
}

/* Saved after 3 of 10 batches of 4; another batch size has the rest of the epoch. */
static void test_resumed_with_other_batches(void **state) {
    (void)state;
    trainer_case c;
    tt_trainer_result result;
    make(&c, 4);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .max_steps = 3,
                                    .checkpoint = "three"),
                     TT_OK);
    case_free(&c);
    make(&c, 12);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 1,
                                    .resume = "three", .result = &result),
                     TT_OK);
    assert_int_equal(result.steps, 3 + 3); /* 25 examples */
    case_free(&c);
}

/* ---- mixed precision ---- */

static tt_tensor *types_step(tt_trainer *t, const tt_batch *b, void *user) {
    const tt_dtype *want = user;
    assert_true(tt_is_autocast_enabled() && tt_get_autocast_dtype() == *want);
    return case_step(t, b, NULL);
}

static tt_tensor *big_in_step_3(tt_trainer *t, const tt_batch *b, void *user) {
    tt_tensor *loss = case_step(t, b, user);
    return tt_trainer_steps(t) == 2 ? tt_scale(loss, 1e35) : loss;
}

static void test_autocast(void **state) {
    (void)state;
    const tt_dtype types[] = {TT_BF16, TT_F16};
    for (int i = 0; i < 2; i++) {
        trainer_case a, b;
        make(&a, 8);
        make(&b, 8);
        assert_int_equal(tt_trainer_run(a.model, a.optimizer, a.loader, types_step, .user = (void *)&types[i],
                                        .sampler = a.sampler, .epochs = 1, .step_seed = 5, .autocast = types[i],
                                        .eval_loader = a.eval_loader),
                         TT_OK);
        assert_false(tt_is_autocast_enabled());
        tt_batch batch;
        tt_sampler_set_epoch(b.sampler, 0);
        for (int64_t step = 0; tt_loader_next(b.loader, &batch) > 0; step++) {
            TT_AUTO_SCOPE;
            tt_tensor *loss;
            tt_optimizer_zero_grad(b.optimizer);
            case_step_seed(5, step, 0, 1);
            {
                TT_AUTOCAST(types[i]);
                loss = tt_cross_entropy(tt_module_forward(b.model, batch.x), batch.y);
            }
            assert_int_equal(tt_backward(loss), TT_OK);
            assert_int_equal(tt_optimizer_step(b.optimizer), TT_OK);
        }
        assert_true(case_equal(&a, &b));
        case_free(&a);
        case_free(&b);
    }
}

static tt_status run_scaled(trainer_case *c, tt_grad_scaler *scaler, int64_t max_steps, const char *checkpoint,
                            const char *resume) {
    return tt_trainer_run(c->model, c->optimizer, c->loader, big_in_step_3, .sampler = c->sampler, .epochs = 2,
                          .max_steps = max_steps, .accumulate = 2, .clip_norm = 0.5, .scheduler = c->scheduler,
                          .scheduler_when = TT_TRAINER_EACH_STEP, .step_seed = 5, .autocast = TT_F16, .scaler = scaler,
                          .checkpoint = checkpoint, .resume = resume);
}

/* 10 steps, one of which is skipped; resumed after each of them. */
static void test_scaler(void **state) {
    (void)state;
    trainer_case whole;
    make(&whole, 4);
    tt_grad_scaler *scaler = tt_grad_scaler_new(1024, .growth_interval = 3);
    assert_int_equal(run_scaled(&whole, scaler, 0, NULL, NULL), TT_OK);
    assert_int_equal(tt_lr_scheduler_last_epoch(whole.scheduler), 9);
    double scale = tt_grad_scaler_get_scale(scaler);
    assert_true(scale == 1024.0 / 2 * 2 * 2); /* it falls once, and rises after steps 6 and 9 */
    tt_grad_scaler_free(scaler);
    for (int64_t k = 1; k <= 9; k++) {
        trainer_case first, second;
        make(&first, 4);
        make(&second, 4);
        tt_grad_scaler *a = tt_grad_scaler_new(1024, .growth_interval = 3), *b = tt_grad_scaler_new(2);
        assert_int_equal(run_scaled(&first, a, k, "scaled", NULL), TT_OK);
        assert_int_equal(run_scaled(&second, b, 0, NULL, "scaled"), TT_OK);
        assert_true(case_equal(&whole, &second) && tt_grad_scaler_get_scale(b) == scale);
        tt_grad_scaler_free(a);
        tt_grad_scaler_free(b);
        case_free(&first);
        case_free(&second);
    }
    case_free(&whole);
}

/* ---- metrics ---- */

static void log_run(const char *run, int64_t max_steps, const char *checkpoint, const char *resume) {
    trainer_case c;
    make(&c, 4);
    tt_summary_writer *writer = tt_summary_writer_new(run);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 3,
                                    .max_steps = max_steps, .checkpoint = checkpoint, .resume = resume,
                                    .metrics = writer, .log_every = 1),
                     TT_OK);
    tt_summary_writer_free(writer);
    case_free(&c);
}

/* Killed at step 9 with a checkpoint of step 4: the table has each step once. */
static void test_resumed_metrics(void **state) {
    (void)state;
    char line[256];
    int times[16] = {0}, step;
    log_run("metrics", 4, "fourth", NULL);
    log_run("metrics", 9, NULL, "fourth");
    log_run("metrics", 6, NULL, "fourth");
    FILE *table = fopen("metrics/scalars.csv", "r");
    assert_non_null(table);
    while (fgets(line, sizeof line, table))
        if (sscanf(line, "%d,", &step) == 1 && strstr(line, ",train/loss,"))
            times[step]++;
    fclose(table);
    for (step = 0; step < 16; step++)
        assert_int_equal(times[step], step >= 1 && step <= 6);
}

/* ---- locales ---- */

/* A program whose locale has another decimal point: its own checkpoint, metrics and texts are those of any other. */
static void test_comma_locale(void **state) {
    (void)state;
    static const char config[] = "{\"n_layer\": 1, \"n_head\": 1, \"n_embd\": 8, \"n_positions\": 8, "
                                 "\"vocab_size\": 9, \"layer_norm_epsilon\": 1.5e-05}";
    for (int i = 0; i < DECIMAL_POINTS; i++) {
        trainer_case whole, first, second;
        tt_model_gpt2_args gpt2;
        size_t size;
        if (!use_decimal_point(i))
            skip(); /* no localedef */
        make(&whole, 4);
        make(&first, 4);
        make(&second, 4);
        assert_int_equal(run_to(&whole, 0, NULL, NULL), TT_OK);
        assert_int_equal(run_to(&first, 7, "local", NULL), TT_OK);
        if (run_to(&second, 0, "local", "local"))
            fail_msg("%s", tt_last_error());
        assert_true(case_equal(&whole, &second));
        log_run(i ? "metrics-1" : "metrics-0", 4, NULL, NULL);
        assert_int_equal(tt__gpt2_config_parse(config, sizeof config - 1, "config", &gpt2), TT_OK);
        assert_true(gpt2.layer_norm_epsilon == 1.5e-05);
        {
            TT_AUTO_SCOPE;
            char text[64];
            tt_tensor_text(tt_full(TT_SHAPE(2), TT_F32, 1.5), text, sizeof text);
            assert_string_equal(text, "tensor([1.5000, 1.5000])");
        }
        assert_int_equal(tt_fail(TT_ERR_INVALID, "got %g", 0.5), TT_ERR_INVALID);
        assert_string_equal(tt_last_error(), "got 0.5");
        tt_clear_error();
        use_c_locale();
        unsigned char *table = slurp(i ? "metrics-1/scalars.csv" : "metrics-0/scalars.csv", &size);
        table[size] = '\0';
        double step, time, value;
        const char *row = strstr((char *)table, "\n1,");
        assert_non_null(row);
        assert_int_equal(sscanf(row, "%lf,%lf,train/loss,%lf\r\n", &step, &time, &value), 3);
        free(table);
        case_free(&second);
        case_free(&first);
        case_free(&whole);
    }
}

/* ---- another metric decides ---- */

static tt_tensor *listed_loss(tt_trainer *t, const tt_batch *b, void *user) {
    static const double losses[] = {5, 4, 4.5};
    (void)b;
    (void)user;
    return tt_full(TT_SCALAR, TT_F64, losses[tt_trainer_epoch(t) - 1]);
}

static void count_warnings(const tt_trainer_report *r, void *user) { *(int *)user += r->event == TT_TRAINER_WARNING; }

/* A best of 4, the least loss, is not compared with accuracies, nor with losses of which more is better. */
static void test_resumed_with_another_monitor(void **state) {
    (void)state;
    static const struct {
        const char *monitor;
        bool max, anew;
    } runs[] = {{"loss", false, false}, {NULL, false, false}, {"accuracy", true, true}, {"loss", true, true}};
    for (int i = 0; i < 4; i++) {
        trainer_case c;
        tt_trainer_result result;
        int warnings = 0;
        make(&c, 16);
        assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler,
                                        .epochs = i ? 4 : 3, .eval_loader = c.eval_loader,
                                        .eval = i ? NULL : listed_loss, .monitor = runs[i].monitor,
                                        .monitor_max = runs[i].max, .patience = 1, .checkpoint = i ? NULL : "other",
                                        .resume = i ? "other" : NULL, .display = count_warnings,
                                        .display_user = &warnings, .result = &result),
                         TT_OK);
        assert_int_equal(warnings, runs[i].anew);
        assert_int_equal(result.reason, runs[i].anew ? TT_TRAINER_FINISHED : TT_TRAINER_PATIENCE);
        assert_true(result.best == (runs[i].anew ? result.monitored : 4));
        case_free(&c);
    }
}

/* A plateau has a best of its own. */
static void test_a_plateau_of_another_monitor(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) { /* only the second one with another .monitor */
        trainer_case c;
        make(&c, 16);
        tt_lr_scheduler *plateau = tt_reduce_lr_on_plateau(c.optimizer, 0);
        tt_status status = tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 1,
                                          .eval_loader = c.eval_loader, .monitor = i == 1 ? "accuracy" : NULL,
                                          .scheduler = plateau, .scheduler_when = TT_TRAINER_EACH_EVALUATION,
                                          .checkpoint = "plateau", .resume = i ? "plateau" : NULL);
        if (i == 1)
            assert_non_null(strstr(tt_last_error(), "plateau: the scheduler stepped by \"loss\" (less is better)"));
        assert_int_equal(status, i == 1 ? TT_ERR_STATE : TT_OK);
        tt_lr_scheduler_free(plateau);
        case_free(&c);
    }
}

/* ---- checkpoints that are kept ---- */

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* Names that anybody may have put there: with a number that no run writes, or that can't be removed. They count for
 * nothing, and stay. */
static void test_what_looks_like_kept(void **state) {
    (void)state;
    static const char *const files[] = {"looks/m-step-007.safetensors",
                                        "looks/m-step-99999999999999999999.safetensors"};
    trainer_case c;
    make(&c, 8);
    assert_int_equal(mkdir("looks", 0777), 0);
    assert_int_equal(mkdir("looks/m-step-1.safetensors", 0777), 0);
    for (int i = 0; i < 2; i++)
        fclose(fopen(files[i], "w"));
    alarm(60); /* it may never end */
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 3,
                                    .checkpoint = "looks/m.safetensors", .save_every = 1, .keep = 1),
                     TT_OK);
    alarm(0);
    assert_true(exists("looks/m-step-15.safetensors") && !exists("looks/m-step-10.safetensors"));
    assert_true(exists(files[0]) && exists(files[1]) && exists("looks/m-step-1.safetensors"));
    case_free(&c);
}

/* In a folder such as /tmp only their owner may remove them. */
static void test_what_others_may_remove(void **state) {
    (void)state;
    enum { OWNER = 61234, STRANGER = 61235 }; /* users that no machine has */
    static const char theirs[] = "shared/m-step-1.safetensors";
    trainer_case c;
    if (geteuid() != 0)
        skip();
    make(&c, 8);
    assert_int_equal(chmod(".", 0711) | mkdir("shared", 0777) | chmod("shared", 01777), 0);
    fclose(fopen(theirs, "w"));
    assert_int_equal(chown(theirs, STRANGER, STRANGER) | seteuid(OWNER), 0);
    tt_status status = tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 3,
                                      .checkpoint = "shared/m.safetensors", .save_every = 1, .keep = 1);
    assert_int_equal(seteuid(0), 0);
    if (status)
        fail_msg("%s", tt_last_error());
    assert_true(exists("shared/m-step-15.safetensors") && !exists("shared/m-step-10.safetensors") && exists(theirs));
    case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed_loaders),
        cmocka_unit_test(test_resumed_with_other_batches),
        cmocka_unit_test(test_autocast),
        cmocka_unit_test(test_scaler),
        cmocka_unit_test(test_resumed_metrics),
        cmocka_unit_test(test_comma_locale),
        cmocka_unit_test(test_resumed_with_another_monitor),
        cmocka_unit_test(test_a_plateau_of_another_monitor),
        cmocka_unit_test(test_what_looks_like_kept),
        cmocka_unit_test(test_what_others_may_remove),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
