/* The trainer in one process: the bits of the loop by hand, also resumed anywhere; evaluation, checkpoints, stopping,
 * what people see, and what goes wrong. */
#include "unit/alloc_fail.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/format.h"
#include "metrics/scalar_log.h"
#include "support/own_folder.h"
#include "support/trainer_cases.h"

static void expect_error(tt_status status, tt_status expected, const char *text) {
    assert_int_equal(status, expected);
    if (!strstr(tt_last_error(), text))
        fail_msg("expected \"%s\" in: %s", text, tt_last_error());
    tt_clear_error();
}

static void make(trainer_case *c, int64_t batch_size) { assert_int_equal(case_make(c, 0, 1, batch_size), TT_OK); }

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* ---- the bits ---- */

static void test_the_loop_by_hand(void **state) {
    (void)state;
    for (int64_t accumulate = 1; accumulate <= 4; accumulate++) { /* 10 batches: also steps of fewer */
        trainer_case a, b;
        tt_trainer_result result;
        make(&a, 4);
        make(&b, 4);
        assert_int_equal(case_train_by_hand(&a, a.model, 0, 1, 3, accumulate, 5), TT_OK);
        assert_int_equal(tt_trainer_run(b.model, b.optimizer, b.loader, case_step, .sampler = b.sampler, .epochs = 3,
                                        .accumulate = accumulate, .clip_norm = 0.5, .scheduler = b.scheduler,
                                        .step_seed = 5, .result = &result),
                         TT_OK);
        assert_true(case_equal(&a, &b));
        assert_int_equal(result.reason, TT_TRAINER_FINISHED);
        assert_int_equal(result.epochs, 3);
        assert_int_equal(result.steps, 3 * ((10 + accumulate - 1) / accumulate));
        assert_true(isfinite(result.loss) && isnan(result.monitored) && isnan(result.best));
        case_free(&a);
        case_free(&b);
    }
}

static tt_status run_to(trainer_case *c, int64_t max_steps, const char *checkpoint, const char *resume) {
    return tt_trainer_run(c->model, c->optimizer, c->loader, case_step, .sampler = c->sampler, .epochs = 3,
                          .max_steps = max_steps, .accumulate = 2, .clip_norm = 0.5, .scheduler = c->scheduler,
                          .step_seed = 5, .checkpoint = checkpoint, .resume = resume, .eval_loader = c->eval_loader);
}

/* 15 steps: ended after each of them, at the end of an epoch too, and resumed. */
static void test_resumed_anywhere(void **state) {
    (void)state;
    trainer_case whole;
    make(&whole, 4);
    assert_int_equal(run_to(&whole, 0, "whole", NULL), TT_OK);
    for (int64_t k = 1; k <= 15; k++) {
        trainer_case first, second;
        make(&first, 4);
        assert_int_equal(run_to(&first, k, "part.safetensors", NULL), TT_OK);
        make(&second, 4);
        assert_int_equal(run_to(&second, 0, NULL, "part.safetensors"), TT_OK);
        assert_true(case_equal(&whole, &second));
        case_free(&first);
        case_free(&second);
    }
    tt_progress progress = TT_PROGRESS_INIT;
    assert_int_equal(tt_checkpoint_progress("whole", &progress), TT_OK);
    assert_int_equal(progress.epoch, 3);
    assert_int_equal(progress.step, 15);
    assert_int_equal(progress.epoch_step, 0);
    assert_int_equal(progress.evaluations, 3);
    assert_int_equal(progress.sampler_seed, CASE_SEED);
    assert_true(progress.best > 0 && progress.best < 2);

    trainer_case other;
    make(&other, 4);
    tt_sampler *sampler = tt_distributed_sampler(CASE_EXAMPLES, 1, 0, .seed = 99);
    expect_error(tt_trainer_run(other.model, other.optimizer, other.loader, case_step, .sampler = sampler, .epochs = 3,
                                .scheduler = other.scheduler, .resume = "whole"),
                 TT_ERR_STATE, "the sampler had the seed 3, the one given has 99");
    tt_sampler_free(sampler);
    case_free(&other);
    case_free(&whole);
}

/* ---- evaluation ---- */

/* What a run showed. */
typedef struct seen {
    int events[TT_TRAINER_END + 1];
    double accuracy[64], loss[64]; /* of evaluations */
    int evaluations;
    char end[64], warning[256];
    bool no_stop;
} seen;

static double find_metric(const tt_trainer_metric *metrics, int64_t count, const char *name) {
    for (int64_t i = 0; i < count; i++)
        if (!strcmp(metrics[i].name, name))
            return metrics[i].value;
    return NAN;
}

static void note_report(const tt_trainer_report *r, void *user) {
    seen *s = user;
    s->events[r->event]++;
    if (r->eval_count) {
        assert_string_equal(r->eval[0].name, "loss");
        s->accuracy[s->evaluations] = find_metric(r->eval, r->eval_count, "accuracy");
        s->loss[s->evaluations++] = r->eval[0].value;
    }
    if (r->event == TT_TRAINER_EPOCH) {
        assert_int_equal(r->examples, CASE_EXAMPLES);
        assert_true(isfinite(find_metric(r->train, r->train_count, "accuracy")));
    }
    if (r->event == TT_TRAINER_END)
        snprintf(s->end, sizeof s->end, "%s", r->text ? r->text : "none");
    if (r->event == TT_TRAINER_WARNING)
        snprintf(s->warning, sizeof s->warning, "%s", r->text);
}

/* The mean over examples, though the last batch is smaller. */
static void test_evaluation_is_exact(void **state) {
    (void)state;
    trainer_case c;
    seen s = {0};
    make(&c, 8);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 4,
                                    .eval_loader = c.eval_loader, .eval_every = 2, .eval_every_steps = 3,
                                    .display = note_report, .display_user = &s),
                     TT_OK);
    assert_int_equal(s.evaluations, 8); /* 3 6 9 10 12 15 18 20 */
    assert_int_equal(s.events[TT_TRAINER_EPOCH], 4);
    assert_int_equal(s.events[TT_TRAINER_EVALUATED], 5); /* inside of epochs */
    TT_AUTO_SCOPE;
    tt_module_eval(c.model);
    tt_tensor *y = tt_module_forward(c.model, tt_dataset_inputs(c.test)), *targets = tt_dataset_targets(c.test);
    double loss, correct = 0;
    assert_int_equal(tt_item(tt_cross_entropy(y, targets), &loss), TT_OK);
    for (int64_t i = 0; i < 11; i++)
        correct += tt_tensor_i64(tt_argmax(y, 1))[i] == tt_tensor_i64(targets)[i];
    assert_true(fabs(s.loss[s.evaluations - 1] - loss) < 1e-6);
    assert_true(fabs(s.accuracy[s.evaluations - 1] - correct / 11) < 1e-12);
    case_free(&c);
}

/* Where .max_steps ends an epoch early there is an evaluation, once. */
static void test_the_last_evaluation(void **state) {
    (void)state;
    for (int64_t steps = 6; steps <= 7; steps++) {
        trainer_case c;
        seen s = {0};
        make(&c, 8);
        assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .max_steps = steps,
                                        .eval_loader = c.eval_loader, .eval_every_steps = 3, .display = note_report,
                                        .display_user = &s),
                         TT_OK);
        assert_int_equal(s.events[TT_TRAINER_EPOCH], 1);             /* of 5 steps */
        assert_int_equal(s.events[TT_TRAINER_EVALUATED], steps - 4); /* 3 6 (7) */
        case_free(&c);
    }
}

/* An evaluation whose losses are a list. */
static const double losses[] = {5, 4, NAN, 4.5, 3, 3, 3.5, 9};

static tt_tensor *listed_loss(tt_trainer *t, const tt_batch *b, void *user) {
    (void)b;
    (void)user;
    assert_true(tt_trainer_evaluating(t) && !tt_module_training(tt_trainer_model(t)));
    return tt_full(TT_SCALAR, TT_F64, losses[tt_trainer_epoch(t) - 1]);
}

static void test_best_and_patience(void **state) {
    (void)state;
    trainer_case c;
    tt_trainer_result result;
    seen s = {0};
    make(&c, 16);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 8,
                                    .eval_loader = c.eval_loader, .eval = listed_loss, .patience = 2,
                                    .best_checkpoint = "best", .result = &result),
                     TT_OK);
    assert_int_equal(result.reason, TT_TRAINER_PATIENCE); /* NaN and 4.5 are two in a row */
    assert_int_equal(result.epochs, 4);
    assert_true(result.best == 4 && result.monitored == 4.5);
    tt_progress progress = TT_PROGRESS_INIT;
    assert_int_equal(tt_checkpoint_progress("best", &progress), TT_OK);
    assert_int_equal(progress.epoch, 2);
    case_free(&c);
    make(&c, 16);
    tt_lr_scheduler *plateau = tt_reduce_lr_on_plateau(c.optimizer, 0, .factor = 0.5);
    double lr;
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 4,
                                    .eval_loader = c.eval_loader, .monitor = "accuracy", .monitor_max = true,
                                    .scheduler = plateau, .scheduler_when = TT_TRAINER_EACH_EVALUATION,
                                    .display = note_report, .display_user = &s, .result = &result),
                     TT_OK);
    assert_int_equal(tt_optimizer_get_option(c.optimizer, 0, "lr", &lr), TT_OK);
    assert_int_equal(tt_lr_scheduler_last_epoch(plateau), 4);
    double best = 0;
    for (int i = 0; i < s.evaluations; i++)
        best = s.accuracy[i] > best ? s.accuracy[i] : best;
    assert_true(result.best == best);
    tt_lr_scheduler_free(plateau);
    case_free(&c);
}

/* The same command again: patience and the best value are the checkpoint's, and so is what a run reports that has
 * nothing left to do. */
static void test_resumed_after_the_end(void **state) {
    (void)state;
    tt_trainer_result results[4];
    for (int i = 0; i < 4; i++) { /* the last two are more patient: they go on to the end, and then stay there */
        trainer_case c;
        make(&c, 16);
        assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 8,
                                        .eval_loader = c.eval_loader, .eval = listed_loss, .patience = i < 2 ? 2 : 9,
                                        .checkpoint = "patient", .resume = i ? "patient" : NULL, .result = &results[i]),
                         TT_OK);
        case_free(&c);
    }
    assert_int_equal(results[0].epochs, 4);
    assert_int_equal(results[2].epochs, 8);
    for (int i = 0; i < 4; i += 2) {
        assert_int_equal(results[i + 1].reason, i ? TT_TRAINER_FINISHED : TT_TRAINER_PATIENCE);
        assert_int_equal(results[i + 1].reason, results[i].reason);
        assert_int_equal(results[i + 1].epochs, results[i].epochs);
        assert_int_equal(results[i + 1].steps, results[i].steps);
        assert_true(results[i + 1].loss == results[i].loss && results[i + 1].monitored == results[i].monitored);
        assert_true(results[i + 1].best == results[i].best && results[i].best == (i ? 3 : 4));
    }
}

/* ---- checkpoints, stopping ---- */

static void test_checkpoints_are_kept(void **state) {
    (void)state;
    trainer_case c;
    seen s = {0};
    make(&c, 8); /* 5 steps an epoch */
    assert_int_equal(mkdir("kept", 0777), 0);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 3,
                                    .checkpoint = "kept/m.safetensors", .save_every = 1, .save_every_steps = 4,
                                    .keep = 2, .display = note_report, .display_user = &s),
                     TT_OK);
    assert_int_equal(s.events[TT_TRAINER_SAVED], 6); /* 4 5 8 10 12 15 */
    assert_true(exists("kept/m.safetensors") && exists("kept/m-step-12.safetensors"));
    assert_true(exists("kept/m-step-15.safetensors") && !exists("kept/m-step-10.safetensors"));
    tt_progress progress = TT_PROGRESS_INIT;
    assert_int_equal(tt_checkpoint_progress("kept/m-step-12.safetensors", &progress), TT_OK);
    assert_int_equal(progress.step, 12);
    assert_int_equal(progress.epoch_step, 2);
    case_free(&c);
}

static tt_tensor *stops_in_step_7(tt_trainer *t, const tt_batch *b, void *user) {
    int *sig = user;
    if (tt_trainer_steps(t) == 6 && *sig)
        raise(*sig);
    else if (tt_trainer_steps(t) == 6)
        tt_trainer_stop(t);
    return case_step(t, b, NULL);
}

static void test_signals_and_stop(void **state) {
    (void)state;
    int sigs[] = {0, SIGTERM, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        trainer_case c;
        tt_trainer_result result;
        struct sigaction after;
        seen s = {0};
        make(&c, 8);
        unlink("stopped");
        assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, stops_in_step_7, .user = &sigs[i],
                                        .sampler = c.sampler, .epochs = 3, .checkpoint = "stopped",
                                        .stop_on_signals = true, .display = note_report, .display_user = &s,
                                        .result = &result),
                         TT_OK);
        assert_int_equal(result.reason, i ? TT_TRAINER_SIGNAL : TT_TRAINER_STOPPED);
        assert_int_equal(result.steps, 7);
        assert_string_equal(s.end, i ? "stopped by a signal" : "stopped by the program");
        tt_progress progress = TT_PROGRESS_INIT;
        assert_int_equal(tt_checkpoint_progress("stopped", &progress), TT_OK);
        assert_int_equal(progress.step, 7);
        assert_int_equal(sigaction(SIGTERM, NULL, &after), 0);
        assert_true(after.sa_handler == SIG_DFL);
        case_free(&c);
    }
}

static tt_tensor *stops_in_evaluation(tt_trainer *t, const tt_batch *b, void *user) {
    (void)user;
    if (tt_trainer_evaluating(t))
        tt_trainer_stop(t);
    return case_step(t, b, NULL);
}

/* At the end of an epoch of 5 steps, and inside one: no step is taken after the evaluation. */
static void test_an_evaluation_stops(void **state) {
    (void)state;
    for (int inside = 0; inside < 2; inside++) {
        trainer_case c;
        tt_trainer_result result;
        make(&c, 8);
        assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, stops_in_evaluation, .sampler = c.sampler,
                                        .epochs = 3, .eval_loader = c.eval_loader, .eval_every_steps = inside ? 3 : 0,
                                        .checkpoint = "evaluated", .result = &result),
                         TT_OK);
        assert_int_equal(result.reason, TT_TRAINER_STOPPED);
        assert_int_equal(result.steps, inside ? 3 : 5);
        assert_int_equal(result.epochs, inside ? 0 : 1);
        tt_progress progress = TT_PROGRESS_INIT;
        assert_int_equal(tt_checkpoint_progress("evaluated", &progress), TT_OK);
        assert_int_equal(progress.step, result.steps);
        case_free(&c);
    }
}

/* ---- what people see ---- */

static void test_metrics(void **state) {
    (void)state;
    trainer_case c;
    tt__scalar_log log = {0};
    make(&c, 8);
    tt_summary_writer *writer = tt_summary_writer_new("run");
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 2,
                                    .eval_loader = c.eval_loader, .metrics = writer, .log_every = 2),
                     TT_OK);
    tt_summary_writer_free(writer);
    assert_int_equal(tt__log_read_folder(&log, "run"), TT_OK);
    const struct {
        const char *tag;
        size_t count;
    } expected[] = {{"train/loss", 5}, {"train/accuracy", 5}, {"train/lr", 5}, {"eval/loss", 2}, {"eval/accuracy", 2}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const tt__series *series = tt__scalar_log_find(&log, expected[i].tag);
        assert_non_null(series);
        assert_int_equal(series->count, expected[i].count);
        assert_int_equal(series->points[series->count - 1].step, 10);
    }
    const tt__series *epochs = tt__scalar_log_find(&log, "epoch");
    assert_int_equal(epochs->count, 6); /* 2 4 5 6 8 10 */
    assert_true(epochs->points[0].value == (float)0.4 && epochs->points[2].value == 1 && epochs->points[5].value == 2);
    tt__scalar_log_free(&log);
    case_free(&c);
}

static void test_the_console(void **state) {
    (void)state;
    trainer_case c;
    char text[4096] = "", line[128];
    int epoch, samples;
    double loss, accuracy, eval_loss, eval_accuracy, waited;
    FILE *out = tmpfile();
    make(&c, 8);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 1,
                                    .eval_loader = c.eval_loader, .checkpoint = "shown", .display = tt_trainer_console,
                                    .display_user = out),
                     TT_OK);
    rewind(out);
    assert_true(fread(text, 1, sizeof text - 1, out) > 0);
    locale_t before = tt__c_locale_begin();
    int n = sscanf(text,
                   "Epoch %d, loss %lf, accuracy %lf %%, held-out loss %lf, held-out accuracy %lf %%, %d samples/s, "
                   "waited %lf %% for data\n%127[^\n]",
                   &epoch, &loss, &accuracy, &eval_loss, &eval_accuracy, &samples, &waited, line);
    tt__c_locale_end(before);
    if (n != 8 || !(waited > 0 && waited < 100) || strcmp(line, "Epoch 1, checkpoint saved at shown"))
        fail_msg("the console shows: %s", text);
    tt_trainer_console(NULL, out);
    tt_trainer_console(&(tt_trainer_report){.size = 1}, NULL);
    fclose(out);
    case_free(&c);
}

/* What was saved, and gone on from, inside an epoch is called a step. */
static void test_the_console_tells_steps(void **state) {
    (void)state;
    char text[4096] = "";
    FILE *out = tmpfile();
    for (int part = 0; part < 3; part++) {
        trainer_case c;
        make(&c, 8);
        assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 1,
                                        .max_steps = part == 0 ? 2 : 0, .checkpoint = part == 2 ? NULL : "parts",
                                        .resume = part ? "parts" : NULL, .display = tt_trainer_console,
                                        .display_user = out),
                         TT_OK);
        case_free(&c);
    }
    rewind(out);
    assert_true(fread(text, 1, sizeof text - 1, out) > 0);
    const char *const lines[] = {
        "Epoch 1, step 2, checkpoint saved at parts\n", "Resumed after step 2, in epoch 1, from parts\n",
        "Epoch 1, checkpoint saved at parts\n", "Resumed after epoch 1 from parts: nothing left to train\n"};
    const char *at = text;
    for (size_t i = 0; i < sizeof lines / sizeof *lines && at; i++)
        at = strstr(at, lines[i]);
    if (!at)
        fail_msg("the console shows: %s", text);
    fclose(out);
}

/* ---- what goes wrong ---- */

static tt_tensor *nan_in_step_3(tt_trainer *t, const tt_batch *b, void *user) {
    (void)user;
    tt_tensor *loss = case_step(t, b, NULL);
    return tt_trainer_steps(t) == 2 ? tt_scale(loss, NAN) : loss;
}

static tt_tensor *fails(tt_trainer *t, const tt_batch *b, void *user) {
    (void)user;
    return tt_trainer_add_metric(t, "loss", 1, 1) ? NULL : case_step(t, b, NULL);
}

static tt_tensor *nan_in_batch_4(tt_trainer *t, const tt_batch *b, void *user) {
    tt_tensor *loss = case_step(t, b, NULL);
    return ++*(int64_t *)user == 4 ? tt_scale(loss, NAN) : loss;
}

/* The layers that differ are told, not what else the file has otherwise. */
static void test_another_models_checkpoint(void **state) {
    (void)state;
    trainer_case c;
    make(&c, 4);
    assert_int_equal(run_to(&c, 3, "theirs", NULL), TT_OK);
    case_free(&c);
    make(&c, 4);
    tt_optimizer_free(c.optimizer);
    tt_module_free(c.model);
    c.model = tt_nn_sequential(tt_nn_linear(6, 9), tt_nn_relu(), tt_nn_linear(9, 3));
    c.optimizer = tt_sgd(tt_module_parameters(c.model), 0.1);
    tt_loader *ordered = tt_loader_new(c.test, 4, tt_in_order());
    tt_status status = tt_trainer_run(c.model, c.optimizer, ordered, case_step, .epochs = 3, .resume = "theirs");
    assert_int_not_equal(status, TT_OK);
    expect_error(status, status, "theirs: tt_module_load_state_dict: entry \"2.weight\" is missing");
    tt_loader_free(ordered);
    case_free(&c);
}

static void test_what_goes_wrong(void **state) {
    (void)state;
    trainer_case c, same;
    tt_trainer_result result;
    make(&c, 8);
    make(&same, 8);
    expect_error(tt_trainer_run(c.model, c.optimizer, c.loader, nan_in_step_3, .sampler = c.sampler, .epochs = 2,
                                .step_seed = 1, .result = &result),
                 TT_ERR_NAN, "the loss of step 3 (epoch 1) on rank 0 is nan");
    assert_int_equal(result.steps, 2);
    assert_int_equal(tt_trainer_run(same.model, same.optimizer, same.loader, case_step, .sampler = same.sampler,
                                    .max_steps = 2, .step_seed = 1),
                     TT_OK);
    assert_true(case_equal(&c, &same)); /* the bad gradients were not used */
    int64_t batch = 0;
    expect_error(
        tt_trainer_run(c.model, c.optimizer, c.loader, nan_in_batch_4, .user = &batch, .epochs = 2, .accumulate = 3),
        TT_ERR_NAN, "the loss of step 2 (epoch 1, batch 1 of 2) on rank 0 is nan");
    expect_error(tt_trainer_run(c.model, c.optimizer, c.loader, fails, .epochs = 1), TT_ERR_INVALID,
                 "expected a name other than \"loss\"");
#define RUN(...) tt_trainer_run(c.model, c.optimizer, c.loader, case_step, __VA_ARGS__)
    expect_error(RUN(.user = NULL), TT_ERR_INVALID, "expected .epochs or .max_steps");
    expect_error(RUN(.epochs = 1, .autocast = TT_I64), TT_ERR_INVALID, ".autocast of TT_BF16 or TT_F16");
    expect_error(RUN(.epochs = -1), TT_ERR_INVALID, ".epochs of at least 0, got -1");
    expect_error(RUN(.epochs = 1, .clip_norm = -1), TT_ERR_INVALID, ".clip_norm");
    expect_error(RUN(.epochs = 1, .clip_norm = NAN), TT_ERR_INVALID, ".clip_norm");
    expect_error(RUN(.epochs = 1, .patience = 1), TT_ERR_INVALID, ".patience needs .eval_loader");
    expect_error(RUN(.epochs = 1, .best_checkpoint = "x"), TT_ERR_INVALID, ".best_checkpoint needs .eval_loader");
    expect_error(RUN(.epochs = 1, .keep = 1), TT_ERR_INVALID, "need .checkpoint");
    expect_error(RUN(.epochs = 1, .checkpoint = "no/such/folder"), TT_ERR_IO, "no/such/folder");
    expect_error(RUN(.epochs = 1, .resume = "missing"), TT_ERR_IO, "missing");
    expect_error(RUN(.epochs = 1, .scheduler_when = (tt_trainer_when)9), TT_ERR_INVALID, ".scheduler_when, got 9");
    expect_error(RUN(.epochs = 1, .eval_loader = c.eval_loader, .monitor = "F1"), TT_ERR_NOT_FOUND,
                 ".monitor is \"F1\", but the evaluation has \"loss\", \"accuracy\"");
#undef RUN
    expect_error(tt_trainer_run(NULL, c.optimizer, c.loader, case_step, .epochs = 1), TT_ERR_INVALID,
                 "`model` is NULL");
    expect_error(tt_trainer_run(c.model, c.optimizer, c.loader, NULL, .epochs = 1), TT_ERR_INVALID, "`step` is NULL");
    expect_error(tt_trainer_add_metric(NULL, "a", 1, 1), TT_ERR_INVALID, "`trainer` is NULL");
    assert_null(tt_trainer_model(NULL));
    tt_trainer_stop(NULL);
    case_free(&c);
    case_free(&same);
}

/* A disk that is full for the metrics alone is a warning, and the training goes on. */
static void test_metrics_that_cant_be_written(void **state) {
    (void)state;
    trainer_case c;
    seen s = {0};
    make(&c, 8);
    assert_int_equal(mkdir("full", 0777), 0);
    assert_int_equal(symlink("/dev/full", "full/scalars.csv"), 0);
    tt_summary_writer *writer = tt_summary_writer_new("full", .no_events = true);
    if (writer) /* the header is written already: elsewhere /dev/full may take it */
        tt_summary_writer_free(writer);
    tt_clear_error();
    unlink("full/scalars.csv");
    writer = tt_summary_writer_new("full", .no_events = true);
    assert_non_null(writer);
    int full = open("/dev/full", O_WRONLY);
    if (full < 0)
        skip();
    char link[64], target[512];
    for (int fd = 3; fd < 64; fd++) { /* put it where the writer has its file */
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (strstr(target, "full/scalars.csv"))
            assert_int_equal(dup2(full, fd), fd);
    }
    close(full);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 2,
                                    .metrics = writer, .log_every = 1, .display = note_report, .display_user = &s),
                     TT_OK);
    assert_int_equal(s.events[TT_TRAINER_WARNING], 1);
    assert_non_null(strstr(s.warning, "can't write to full/scalars.csv"));
    tt_summary_writer_free(writer);
    case_free(&c);
}

/* ---- memory ---- */

static tt_status whole_program(void *unused) {
    (void)unused;
    trainer_case c;
    tt_status status = case_make(&c, 0, 1, 16);
    if (!status)
        status = tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .sampler = c.sampler, .epochs = 1,
                                .eval_loader = c.eval_loader, .scheduler = c.scheduler, .checkpoint = "oom.safetensors",
                                .keep = 1, .resume = exists("oom-from") ? "oom-from" : NULL, .step_seed = 1);
    case_free(&c);
    return status;
}

static void test_memory_runs_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(whole_program, NULL, ALLOC_ENDS) > 50);
}

static tt_tensor *counts_allocations(tt_trainer *t, const tt_batch *b, void *user) {
    long *first = user;
    if (tt_trainer_steps(t) == 12)
        *first = alloc_count_own;
    else if (tt_trainer_steps(t) == 19)
        assert_int_equal(alloc_count_own, *first);
    return case_step(t, b, NULL);
}

static void test_steady_steps_allocate_nothing(void **state) {
    (void)state;
    trainer_case c;
    long first;
    if (!alloc_count_works)
        skip();
    make(&c, 8);
    tt_loader *loader = tt_loader_new(c.data, 1, c.sampler);
    assert_int_equal(tt_trainer_run(c.model, c.optimizer, loader, counts_allocations, .sampler = c.sampler, .epochs = 1,
                                    .user = &first, .log_every = 2, .clip_norm = 1),
                     TT_OK);
    tt_loader_free(loader);
    case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_loop_by_hand),
        cmocka_unit_test(test_resumed_anywhere),
        cmocka_unit_test(test_evaluation_is_exact),
        cmocka_unit_test(test_the_last_evaluation),
        cmocka_unit_test(test_best_and_patience),
        cmocka_unit_test(test_resumed_after_the_end),
        cmocka_unit_test(test_checkpoints_are_kept),
        cmocka_unit_test(test_signals_and_stop),
        cmocka_unit_test(test_an_evaluation_stops),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_the_console),
        cmocka_unit_test(test_the_console_tells_steps),
        cmocka_unit_test(test_another_models_checkpoint),
        cmocka_unit_test(test_what_goes_wrong),
        cmocka_unit_test(test_metrics_that_cant_be_written),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_steady_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
