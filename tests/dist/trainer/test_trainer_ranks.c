/* The trainer on several ranks: the bits of a loop with DDP, means over all examples, and ends that all ranks share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/own_folder.h"
#include "support/ranks.h"
#include "support/trainer_cases.h"

#include <math.h>

static void make(trainer_case *c, int rank, int world) { CHECK_OK(case_make(c, rank, world, 4)); }

static tt_status run(trainer_case *c, tt_group *group, int64_t accumulate, int64_t max_steps, const char *checkpoint,
                     const char *resume, tt_trainer_result *result) {
    return tt_trainer_run(c->model, c->optimizer, c->loader, case_step, .group = group, .sampler = c->sampler,
                          .epochs = 3, .max_steps = max_steps, .accumulate = accumulate, .clip_norm = 0.5,
                          .scheduler = c->scheduler, .step_seed = 5, .checkpoint = checkpoint, .resume = resume,
                          .result = result);
}

static void by_hand(tt_group *group, int rank, void *user) {
    (void)user;
    int world = tt_get_world_size(group);
    for (int64_t accumulate = 1; accumulate <= 3; accumulate++) {
        trainer_case a, b;
        make(&a, rank, world);
        make(&b, rank, world);
        tt_module *ddp = tt_ddp(a.model, group);
        CHECK(ddp);
        CHECK_OK(case_train_by_hand(&a, ddp, rank, world, 3, accumulate, 5));
        tt_module_free(ddp);
        CHECK_OK(run(&b, group, accumulate, 0, NULL, NULL, NULL));
        CHECK(case_equal(&a, &b));
        case_free(&a);
        case_free(&b);
    }
}

static void test_the_loop_by_hand(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, by_hand, NULL), 0);
    assert_int_equal(run_ranks(3, by_hand, NULL), 0);
}

/* ---- one exchange a step ---- */

static void count_begun(const tt_reducer_event *event, void *user) {
    *(int64_t *)user += event->kind == TT_REDUCER_BEGIN;
}

/* case_step(), in a run whose reducer tells of each all_reduce. */
static tt_tensor *counted_step(tt_trainer *t, const tt_batch *b, void *user) {
    tt_reducer *reducer = tt_ddp_reducer(tt_trainer_model(t));
    CHECK(tt_reducer_bucket_count(reducer) == 1);
    tt_reducer_set_trace(reducer, count_begun, user);
    return case_step(t, b, NULL);
}

/* Steps of three batches, each of which is averaged at once: the mean of sums is the sum of means. */
static void average_each_batch(trainer_case *c, tt_group *group, int rank, int world) {
    tt_module *ddp = tt_ddp(c->model, group);
    const int64_t batches = tt_loader_batches(c->loader);
    tt_batch b;
    CHECK(ddp);
    tt_sampler_set_epoch(c->sampler, 0);
    for (int64_t at = 0; tt_loader_next(c->loader, &b) > 0; at++) {
        TT_AUTO_SCOPE;
        int64_t first = at / 3 * 3, parts = batches - first < 3 ? batches - first : 3;
        if (at == first) {
            tt_optimizer_zero_grad(c->optimizer);
            case_step_seed(5, first / 3, rank, world);
        }
        CHECK_OK(tt_backward(tt_scale(tt_cross_entropy(tt_module_forward(ddp, b.x), b.y), 1 / (double)parts)));
        if (at + 1 < first + parts)
            continue;
        CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(c->model), 0.5));
        CHECK_OK(tt_optimizer_step(c->optimizer));
    }
    tt_module_free(ddp);
}

static void one_exchange(tt_group *group, int rank, void *user) {
    (void)user;
    int world = tt_get_world_size(group);
    int64_t begun = 0;
    trainer_case a, b;
    tt_trainer_result result;
    make(&a, rank, world);
    make(&b, rank, world);
    CHECK_OK(tt_trainer_run(a.model, a.optimizer, a.loader, counted_step, .user = &begun, .group = group,
                            .sampler = a.sampler, .epochs = 1, .accumulate = 3, .clip_norm = 0.5, .step_seed = 5,
                            .result = &result));
    CHECK(begun == result.steps && result.steps == (tt_loader_batches(a.loader) + 2) / 3);
    average_each_batch(&b, group, rank, world);
    const tt_named_tensors *p = tt_module_parameters(a.model), *q = tt_module_parameters(b.model);
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            CHECK(fabsf(tt_tensor_f32(p->tensors[i])[k] - tt_tensor_f32(q->tensors[i])[k]) <= 1e-6f);
    case_free(&a);
    case_free(&b);
}

static void test_accumulated_gradients_are_exchanged_once(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, one_exchange, NULL), 0);
    assert_int_equal(run_ranks(3, one_exchange, NULL), 0);
}

/* ---- running statistics ---- */

typedef struct statistics {
    float trained[6], evaluated[6]; /* running means at the end of the last step, and in the evaluation */
} statistics;

static tt_tensor *note_statistics(tt_trainer *t, const tt_batch *b, void *user) {
    statistics *s = user;
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(tt_trainer_model(t), b->x), b->y);
    const tt_named_tensors *buffers = tt_module_buffers(tt_trainer_model(t));
    CHECK(loss && buffers && !strcmp(buffers->names[0], "0.running_mean"));
    memcpy(tt_trainer_evaluating(t) ? s->evaluated : s->trained, tt_tensor_f32(buffers->tensors[0]), sizeof s->trained);
    return loss;
}

static void evaluate_alike(tt_group *group, int rank, void *user) {
    (void)user;
    statistics own = {0}, all[2];
    trainer_case c;
    make(&c, rank, 2);
    tt_module *model = tt_nn_sequential(tt_nn_batch_norm1d(6), tt_nn_linear(6, 3));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1);
    CHECK_OK(tt_trainer_run(model, sgd, c.loader, note_statistics, .user = &own, .group = group, .sampler = c.sampler,
                            .epochs = 2, .eval_loader = c.eval_loader));
    CHECK_OK(tt_all_gather(group, &own, all, sizeof own, TT_U8));
    CHECK(memcmp(all[0].trained, all[1].trained, sizeof own.trained)); /* of each rank's own batches */
    for (int r = 0; r < 2; r++)
        CHECK(!memcmp(all[0].trained, all[r].evaluated, sizeof own.trained));
    tt_optimizer_free(sgd);
    tt_module_free(model);
    case_free(&c);
}

static void test_ranks_evaluate_the_same_statistics(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, evaluate_alike, NULL), 0);
}

/* ---- resumed ---- */

static void resumed(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case whole, first, second;
    make(&whole, rank, 2);
    CHECK_OK(run(&whole, group, 2, 0, NULL, NULL, NULL));
    for (int64_t k = 1; k <= 9; k += 2) {
        make(&first, rank, 2);
        CHECK_OK(run(&first, group, 2, k, "part", NULL, NULL));
        CHECK_OK(tt_barrier(group)); /* rank 0 has saved */
        make(&second, rank, 2);
        CHECK_OK(run(&second, group, 2, 0, NULL, "part", NULL));
        CHECK(case_equal(&whole, &second));
        CHECK_OK(tt_barrier(group));
        case_free(&first);
        case_free(&second);
    }
    case_free(&whole);
}

static void test_resumed_anywhere(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, resumed, NULL), 0);
}

/* ---- another number of ranks ---- */

/* What a run visits, one byte for each example, added up over ranks by a display that no rank has: by the step. */
static tt_tensor *note_visits(tt_trainer *t, const tt_batch *b, void *user) {
    int64_t *visits = user;
    if (!tt_trainer_evaluating(t))
        for (int64_t i = 0; i < b->size; i++)
            visits[b->indices[i]]++;
    return case_step(t, b, NULL);
}

/* Two steps of an epoch, saved with the visits of all ranks; or the rest of it, on other ranks. */
static void part_of_epoch(tt_group *group, int rank, void *user) {
    const bool rest = *(const bool *)user;
    trainer_case c;
    int64_t visits[CASE_EXAMPLES] = {0};
    make(&c, rank, tt_get_world_size(group));
    if (rest) {
        FILE *f = fopen("visits", "rb");
        CHECK(f && (rank || fread(visits, sizeof visits, 1, f) == 1));
        fclose(f);
    }
    CHECK_OK(tt_trainer_run(c.model, c.optimizer, c.loader, note_visits, .user = visits, .group = group,
                            .sampler = c.sampler, .epochs = 1, .max_steps = rest ? 0 : 2,
                            .checkpoint = rest ? NULL : "few", .resume = rest ? "few" : NULL));
    CHECK_OK(tt_all_reduce(group, visits, CASE_EXAMPLES, TT_I64, TT_SUM));
    int64_t again = 0;
    for (int64_t i = 0; rest && i < CASE_EXAMPLES; i++) {
        CHECK(visits[i] >= 1);
        again += visits[i] - 1;
    }
    CHECK(again < tt_get_world_size(group)); /* so that all ranks get the same number */
    if (!rest && rank == 0) {
        FILE *f = fopen("visits", "wb");
        CHECK(f && fwrite(visits, sizeof visits, 1, f) == 1 && !fclose(f));
    }
    case_free(&c);
}

static void test_an_epoch_goes_on_with_other_ranks(void **state) {
    (void)state;
    const int worlds[][2] = {{2, 3}, {3, 1}, {1, 2}, {3, 2}};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        assert_int_equal(run_ranks(worlds[i][0], part_of_epoch, &(bool){false}), 0);
        assert_int_equal(run_ranks(worlds[i][1], part_of_epoch, &(bool){true}), 0);
    }
}

/* ---- orders that only their rank knows ---- */

static tt_status order_of_rank(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        indices[i] = (*(const int *)user * 20 + i + epoch) % CASE_EXAMPLES;
    return TT_OK;
}

static void own_orders(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c[3];
    for (int i = 0; i < 3; i++) {
        make(&c[i], rank, 2);
        tt_loader_free(c[i].loader);
        tt_sampler_free(c[i].sampler);
        c[i].sampler = tt_sampler_from(CASE_EXAMPLES, 20, order_of_rank, .user = &rank);
        c[i].loader = tt_loader_new(c[i].data, 4, c[i].sampler);
    }
    CHECK_OK(run(&c[0], group, 1, 0, NULL, NULL, NULL));
    CHECK_OK(run(&c[1], group, 1, 7, "own", NULL, NULL));
    CHECK_OK(tt_barrier(group)); /* rank 0 has saved */
    CHECK_OK(run(&c[2], group, 1, 0, NULL, "own", NULL));
    CHECK(case_equal(&c[0], &c[2]));
    for (int i = 0; i < 3; i++)
        case_free(&c[i]);
}

/* One rank goes on from a checkpoint of two, in which there is no order. */
static void own_order_alone(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    make(&c, rank, 1);
    tt_loader_free(c.loader);
    tt_sampler_free(c.sampler);
    c.sampler = tt_sampler_from(CASE_EXAMPLES, 20, order_of_rank, .user = &rank);
    c.loader = tt_loader_new(c.data, 4, c.sampler);
    CHECK_OK(run(&c, group, 2, 0, NULL, "own", NULL));
    case_free(&c);
}

static void test_orders_of_ones_own(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, own_orders, NULL), 0);
    assert_int_equal(run_ranks(1, own_order_alone, NULL), 0);
}

/* ---- a scaler ---- */

static tt_tensor *big_on_rank_1(tt_trainer *t, const tt_batch *b, void *user) {
    tt_tensor *loss = case_step(t, b, NULL);
    return *(int *)user == 1 && tt_trainer_steps(t) == 2 ? tt_scale(loss, 1e35) : loss;
}

static void skip_together(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    make(&c, rank, 2);
    tt_grad_scaler *scaler = tt_grad_scaler_new(65536);
    CHECK_OK(tt_trainer_run(c.model, c.optimizer, c.loader, big_on_rank_1, .user = &rank, .group = group,
                            .sampler = c.sampler, .epochs = 1, .scaler = scaler, .autocast = TT_BF16,
                            .scheduler = c.scheduler, .scheduler_when = TT_TRAINER_EACH_STEP));
    CHECK(tt_grad_scaler_get_scale(scaler) == 32768);
    CHECK(tt_lr_scheduler_last_epoch(c.scheduler) == tt_loader_batches(c.loader) - 1);
    double sum, most[2];
    TT_AUTO_SCOPE;
    const tt_named_tensors *params = tt_module_parameters(c.model);
    for (int64_t i = 0; i < params->count; i++) {
        CHECK_OK(tt_item(tt_sum(params->tensors[i]), &sum));
        most[0] = sum, most[1] = -sum;
        CHECK(isfinite(sum));
        CHECK_OK(tt_all_reduce(group, most, 2, TT_F64, TT_MAX));
        CHECK(most[0] == -most[1]);
    }
    tt_grad_scaler_free(scaler);
    case_free(&c);
}

static void test_ranks_skip_together(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, skip_together, NULL), 0);
}

/* ---- means over all ranks ---- */

/* What an evaluation came to, on rank 0. */
typedef struct means {
    double loss, own, common;
    int reports;
} means;

static void note_means(const tt_trainer_report *r, void *user) {
    means *m = user;
    if (!r->eval_count)
        return;
    m->reports++;
    for (int64_t i = 0; i < r->eval_count; i++) {
        if (!strcmp(r->eval[i].name, "only rank 1 has it"))
            m->own = r->eval[i].value;
        else if (!strcmp(r->eval[i].name, "common"))
            m->common = r->eval[i].value;
    }
    m->loss = r->eval[0].value;
}

/* Rank r's loss is r + 1 for each of its 11 + r examples; its metrics differ in weight and name. */
static tt_tensor *known_loss(tt_trainer *t, const tt_batch *b, void *user) {
    int rank = *(int *)user;
    if (rank == 1)
        CHECK_OK(tt_trainer_add_metric(t, "only rank 1 has it", 7, 2));
    CHECK_OK(tt_trainer_add_metric(t, "common", rank, b->size));
    return tt_full(TT_SCALAR, TT_F64, rank + 1);
}

static void exact_means(tt_group *group, int rank, void *user) {
    int with_shares = *(int *)user; /* the other ranks have nothing to evaluate on */
    trainer_case c;
    means m = {0};
    make(&c, rank, 3);
    CHECK_OK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .user = &rank, .group = group,
                            .sampler = c.sampler, .epochs = 2, .eval = known_loss,
                            .eval_loader = rank < with_shares ? c.eval_loader : NULL, .display = note_means,
                            .display_user = &m));
    double loss = 0, common = 0, n = 0;
    for (int r = 0; r < with_shares; r++) {
        loss += (r + 1) * (11 + r);
        common += r * (11 + r);
        n += 11 + r;
    }
    CHECK(m.reports == (rank == 0 ? 2 : 0));
    CHECK(rank != 0 || (fabs(m.loss - loss / n) < 1e-12 && fabs(m.common - common / n) < 1e-12));
    CHECK(rank != 0 || m.own == (with_shares > 1 ? 7 : 0));
    case_free(&c);
}

static void test_means_are_exact(void **state) {
    (void)state;
    for (int with_shares = 1; with_shares <= 3; with_shares++)
        assert_int_equal(run_ranks(3, exact_means, &with_shares), 0);
}

/* ---- ends ---- */

static tt_tensor *stops_on_rank_1(tt_trainer *t, const tt_batch *b, void *user) {
    if (*(int *)user == 1 && tt_trainer_steps(t) == 2)
        raise(SIGUSR1);
    return case_step(t, b, NULL);
}

static void stop_together(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    tt_trainer_result result;
    make(&c, rank, 2);
    CHECK_OK(tt_trainer_run(c.model, c.optimizer, c.loader, stops_on_rank_1, .user = &rank, .group = group,
                            .sampler = c.sampler, .epochs = 3, .stop_on_signals = true, .checkpoint = "stopped",
                            .result = &result));
    CHECK(result.reason == TT_TRAINER_SIGNAL && result.steps == 3);
    case_free(&c);
}

static void test_a_signal_stops_all_after_the_same_step(void **state) {
    (void)state;
    tt_progress progress = TT_PROGRESS_INIT;
    assert_int_equal(run_ranks(2, stop_together, NULL), 0);
    assert_int_equal(tt_checkpoint_progress("stopped", &progress), TT_OK);
    assert_int_equal(progress.step, 3);
}

static tt_tensor *stops_in_evaluation(tt_trainer *t, const tt_batch *b, void *user) {
    if (*(int *)user == 1)
        tt_trainer_stop(t);
    return case_step(t, b, NULL);
}

static void stop_there(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    tt_trainer_result result;
    make(&c, rank, 2);
    CHECK_OK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .eval = stops_in_evaluation, .user = &rank,
                            .group = group, .sampler = c.sampler, .epochs = 3, .eval_loader = c.eval_loader,
                            .result = &result));
    CHECK(result.reason == TT_TRAINER_STOPPED && result.epochs == 1 && result.steps == tt_loader_batches(c.loader));
    case_free(&c);
}

static void test_an_evaluation_stops_all(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, stop_there, NULL), 0);
}

static tt_tensor *bad_on_rank_1(tt_trainer *t, const tt_batch *b, void *user) {
    tt_tensor *loss = case_step(t, b, NULL);
    return *(int *)user == 1 && tt_trainer_steps(t) == 4 ? tt_scale(loss, INFINITY) : loss;
}

static void bad_loss(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    make(&c, rank, 2);
    CHECK(tt_trainer_run(c.model, c.optimizer, c.loader, bad_on_rank_1, .user = &rank, .group = group,
                         .sampler = c.sampler, .epochs = 3) == TT_ERR_NAN);
    CHECK_TEXT("the loss of step 5 (epoch 1) on rank 1 is inf:"); /* on rank 0, too */
    case_free(&c);
}

/* Rank 1 makes a call of its own instead: errors name its line, and what the trainer did, not our line. */
static void stray_call(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    int64_t one = 1;
    make(&c, rank, 2);
    if (rank)
        CHECK(tt_all_reduce(group, &one, 1, TT_I64, TT_SUM) == TT_ERR_MISMATCH);
    else
        CHECK(run(&c, group, 1, 0, NULL, NULL, NULL) == TT_ERR_MISMATCH);
    CHECK_TEXT("the trainer's comparison of options");
    CHECK_TEXT("test_trainer_ranks.c");
    CHECK(!strstr(tt_last_error(), "agreement.c"));
    case_free(&c);
}

static void test_errors_name_no_lines_of_ours(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, stray_call, NULL), 0);
}

static void test_a_bad_loss_is_told_on_every_rank(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, bad_loss, NULL), 0);
}

static void unlike(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    CHECK_OK(case_make(&c, rank, 2, rank ? 5 : 4));
    CHECK(run(&c, group, 1, 0, NULL, NULL, NULL) == TT_ERR_MISMATCH);
    CHECK_TEXT(rank ? "batches of the loader: 4 to 5, and 4 on rank 1" : "4 to 5, and 5 on rank 0");
    case_free(&c);
}

/* One option that rank 1 has otherwise: `text` is what all ranks read, before their own value and number. */
#define REFUSED(text, ...)                                                                                           \
    do {                                                                                                             \
        trainer_case c;                                                                                              \
        make(&c, rank, 2);                                                                                           \
        CHECK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .group = group, .epochs = 2,                 \
                             .eval_loader = c.eval_loader, .checkpoint = "unlike", __VA_ARGS__) == TT_ERR_MISMATCH); \
        CHECK_TEXT(text);                                                                                            \
        CHECK_TEXT(rank ? "on rank 1" : "on rank 0");                                                                \
        case_free(&c);                                                                                               \
    } while (0)

static void unlike_options(tt_group *group, int rank, void *user) {
    (void)user;
    REFUSED(rank ? ".clip_norm: 0 to 0.001, and 0.001" : ".clip_norm: 0 to 0.001, and 0 ",
            .clip_norm = rank ? 0.001 : 0);
    REFUSED(".clip_value: 0.5 to 2, and ", .clip_value = rank ? 0.5 : 2);
    REFUSED(rank ? ".step_seed: 42 to 43, and 43" : "42 to 43, and 42", .step_seed = rank ? 43 : 42);
    REFUSED(".step_seed: 1 to 18446744073709551615, and ", .step_seed = rank ? UINT64_MAX : 1);
    REFUSED(".scheduler given (1) or not (0): 0 to 1, and ", .scheduler = rank ? NULL : c.scheduler);
    REFUSED(".scheduler_when: 0 to 1, and ", .scheduler = c.scheduler, .scheduler_when = (tt_trainer_when)rank);
    REFUSED(".allow_nonfinite: 0 to 1, and ", .allow_nonfinite = rank);
    REFUSED(".monitor is \"", .monitor = rank ? "accuracy" : NULL);
    REFUSED(rank ? "is \"accuracy\" on rank 1" : "is \"loss\" on rank 0", .monitor = rank ? "accuracy" : NULL);
    REFUSED(".monitor_max: 0 to 1, and ", .patience = 1, .monitor_max = rank);
    REFUSED(".save_every: 0 to 3, and ", .save_every = 3 * rank);
    REFUSED(".save_every_steps: 2 to 3, and ", .save_every_steps = 2 + rank);
    REFUSED(".eval_every: 1 to 2, and ", .eval_every = 2 * rank);
    REFUSED(".patience: 1 to 9223372036854775807, and ", .patience = rank ? INT64_MAX : 1);
}

static void unlike_ema(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    make(&c, rank, 2);
    tt_ema *ema = tt_ema_new(tt_module_parameters(c.model), 0.9);
    CHECK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .group = group, .epochs = 1,
                         .ema = rank ? ema : NULL) == TT_ERR_MISMATCH);
    CHECK_TEXT(rank ? ".ema given (1) or not (0): 0 to 1, and 1 on rank 1" : "0 to 1, and 0 on rank 0");
    tt_ema_free(ema);
    case_free(&c);
}

/* What is not given is the same as its default. */
static void alike(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    make(&c, rank, 2);
    CHECK_OK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .group = group, .sampler = c.sampler,
                            .epochs = 1, .eval_loader = c.eval_loader, .log_every = rank ? 50 : 0, .accumulate = rank,
                            .eval_every = rank, .monitor = rank ? "loss" : NULL, .clip_norm = rank ? -0.0 : 0.0,
                            .scheduler_when = rank ? TT_TRAINER_EACH_STEP : TT_TRAINER_EACH_EPOCH));
    case_free(&c);
}

static void test_ranks_that_differ_are_told(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, unlike, NULL), 0);
    assert_int_equal(run_ranks(2, unlike_options, NULL), 0);
    assert_int_equal(run_ranks(2, unlike_ema, NULL), 0);
    assert_int_equal(run_ranks(2, alike, NULL), 0);
}

static tt_tensor *dies_on_rank_1(tt_trainer *t, const tt_batch *b, void *user) {
    if (*(int *)user == 1 && tt_trainer_steps(t) == 3)
        kill(getpid(), SIGKILL);
    return case_step(t, b, NULL);
}

static void death(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    make(&c, rank, 2);
    CHECK(tt_trainer_run(c.model, c.optimizer, c.loader, dies_on_rank_1, .user = &rank, .group = group,
                         .sampler = c.sampler, .epochs = 3) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    case_free(&c);
}

static void test_a_rank_that_dies(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, death, NULL), 1); /* rank 1 alone ends badly */
}

/* Of 37 examples virtual rank 0 has 10 and the others 9: batches of 3 don't divide on rank 0 alone. */
static void train_exact(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case c;
    CHECK_OK(case_make(&c, rank, 2, 3));
    tt_loader_free(c.loader);
    tt_sampler_free(c.sampler);
    c.sampler = tt_distributed_sampler(CASE_EXAMPLES, 2, rank, .exact = true, .virtual_ranks = 4);
    c.loader = tt_loader_new(c.data, 3, c.sampler);
    CHECK(c.loader);
    CHECK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .group = group, .sampler = c.sampler, .epochs = 1,
                         .virtual_ranks = 4) == TT_ERR_INVALID);
    CHECK_TEXT(".exact");
    case_free(&c);
}

static void test_exact_shares_are_refused_on_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train_exact, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_loop_by_hand),
        cmocka_unit_test(test_accumulated_gradients_are_exchanged_once),
        cmocka_unit_test(test_ranks_evaluate_the_same_statistics),
        cmocka_unit_test(test_resumed_anywhere),
        cmocka_unit_test(test_an_epoch_goes_on_with_other_ranks),
        cmocka_unit_test(test_orders_of_ones_own),
        cmocka_unit_test(test_ranks_skip_together),
        cmocka_unit_test(test_means_are_exact),
        cmocka_unit_test(test_a_signal_stops_all_after_the_same_step),
        cmocka_unit_test(test_an_evaluation_stops_all),
        cmocka_unit_test(test_a_bad_loss_is_told_on_every_rank),
        cmocka_unit_test(test_errors_name_no_lines_of_ours),
        cmocka_unit_test(test_ranks_that_differ_are_told),
        cmocka_unit_test(test_a_rank_that_dies),
        cmocka_unit_test(test_exact_shares_are_refused_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
