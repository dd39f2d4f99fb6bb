/* Schedulers that multiply rates by factors: StepLR, MultiStepLR, ExponentialLR, ConstantLR, LinearLR, LambdaLR,
 * ReduceLROnPlateau. */
#include "base/args.h"
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

#include <math.h>

static double base_rate(const tt_lr_scheduler *s, size_t g) { return s->base_lrs[g]; }

/* ---- StepLR ---- */

enum { STEP_SIZE, STEP_GAMMA, STEP_NUMBERS };
static const char *const step_names[STEP_NUMBERS] = {"step_size", "gamma"};

static tt_status step_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    TT__TRY(tt__lr_check_count(who, "step_size", number[STEP_SIZE], 1));
    return tt__lr_check_above(who, "gamma", number[STEP_GAMMA]);
}

static double step_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)g;
    if (s->last_epoch == 0 || s->last_epoch % (int64_t)s->number[STEP_SIZE])
        return lr;
    return lr * s->number[STEP_GAMMA];
}

static const tt__lr_class step_class = {.name = "tt_step_lr",
                                        .numbers = STEP_NUMBERS,
                                        .number_names = step_names,
                                        .check = step_check,
                                        .rate = step_rate,
                                        .first_rate = base_rate};

tt_lr_scheduler *tt_step_lr_with(const tt_step_lr_args *args, size_t size) {
    tt_step_lr_args a;
    TT__ARGS_COPY(a, args, size);
    const double number[] = {[STEP_SIZE] = (double)a.step_size, [STEP_GAMMA] = a.gamma == 0 ? 0.1 : a.gamma};
    return tt__lr_begin(tt__lr_new(&step_class, a.optimizer, number));
}

/* ---- MultiStepLR ---- */

static const char *const gamma_name[] = {"gamma"};

static tt_status gamma_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    return tt__lr_check_above(who, "gamma", number[0]);
}

static double multi_step_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)g;
    int times = 0;
    for (int64_t i = 0; i < s->milestone_count; i++)
        times += s->milestones[i] == s->last_epoch;
    return times ? lr * pow(s->number[0], times) : lr;
}

static const tt__lr_class multi_step_class = {.name = "tt_multi_step_lr",
                                              .numbers = 1,
                                              .number_names = gamma_name,
                                              .milestones_name = "milestones",
                                              .check = gamma_check,
                                              .rate = multi_step_rate,
                                              .first_rate = base_rate};

tt_lr_scheduler *tt_multi_step_lr_with(const tt_multi_step_lr_args *args, size_t size) {
    tt_multi_step_lr_args a;
    TT__ARGS_COPY(a, args, size);
    const double gamma = a.gamma == 0 ? 0.1 : a.gamma;
    tt_lr_scheduler *s = tt__lr_new(&multi_step_class, a.optimizer, &gamma);
    if (s && tt__lr_take_milestones(s, a.milestones, a.count)) {
        tt_lr_scheduler_free(s);
        return NULL;
    }
    return tt__lr_begin(s);
}

/* ---- ExponentialLR ---- */

static double exponential_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)g;
    return s->last_epoch == 0 ? lr : lr * s->number[0];
}

static const tt__lr_class exponential_class = {.name = "tt_exponential_lr",
                                               .numbers = 1,
                                               .number_names = gamma_name,
                                               .check = gamma_check,
                                               .rate = exponential_rate,
                                               .first_rate = base_rate};

tt_lr_scheduler *tt_exponential_lr(tt_optimizer *optimizer, double gamma) {
    return tt__lr_begin(tt__lr_new(&exponential_class, optimizer, &gamma));
}

/* ---- ConstantLR and LinearLR: a factor for the first epochs, which stays, or changes by equal steps ---- */

enum { START_FACTOR, TOTAL_ITERS, END_FACTOR, LINEAR_NUMBERS };
static const char *const constant_names[] = {"factor", "total_iters"};
static const char *const linear_names[LINEAR_NUMBERS] = {"start_factor", "total_iters", "end_factor"};

static double scaled_base(const tt_lr_scheduler *s, size_t g) { return s->base_lrs[g] * s->number[START_FACTOR]; }

static tt_status constant_factor_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    if (!(number[START_FACTOR] > 0 && number[START_FACTOR] <= 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected a first factor above 0 and of at most 1, got %g", who,
                        number[START_FACTOR]);
    return tt__lr_check_count(who, "total_iters", number[TOTAL_ITERS], 1);
}

static tt_status linear_factor_check(const char *who, const tt_optimizer *o, const double *number) {
    if (!(number[END_FACTOR] >= 0 && number[END_FACTOR] <= 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected an end_factor between 0 and 1, got %g", who, number[END_FACTOR]);
    return constant_factor_check(who, o, number);
}

static double constant_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)g;
    if (s->last_epoch == 0)
        return lr * s->number[START_FACTOR];
    return s->last_epoch == (int64_t)s->number[TOTAL_ITERS] ? lr * (1.0 / s->number[START_FACTOR]) : lr;
}

static const tt__lr_class constant_class = {.name = "tt_constant_lr",
                                            .numbers = 2,
                                            .number_names = constant_names,
                                            .check = constant_factor_check,
                                            .rate = constant_rate,
                                            .first_rate = scaled_base};

tt_lr_scheduler *tt_constant_lr(tt_optimizer *optimizer, double factor, int64_t total_iters) {
    const double number[] = {[START_FACTOR] = factor, [TOTAL_ITERS] = (double)total_iters};
    return tt__lr_begin(tt__lr_new(&constant_class, optimizer, number));
}

static double linear_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)g;
    const double start = s->number[START_FACTOR], rise = s->number[END_FACTOR] - start, total = s->number[TOTAL_ITERS];
    if (s->last_epoch == 0)
        return lr * start;
    if (s->last_epoch > (int64_t)total)
        return lr;
    return lr * (1.0 + rise / (total * start + (double)(s->last_epoch - 1) * rise));
}

static const tt__lr_class linear_class = {.name = "tt_linear_lr",
                                          .numbers = LINEAR_NUMBERS,
                                          .number_names = linear_names,
                                          .check = linear_factor_check,
                                          .rate = linear_rate,
                                          .first_rate = scaled_base};

tt_lr_scheduler *tt_linear_lr(tt_optimizer *optimizer, double start_factor, double end_factor, int64_t total_iters) {
    const double number[] = {
        [START_FACTOR] = start_factor, [TOTAL_ITERS] = (double)total_iters, [END_FACTOR] = end_factor};
    return tt__lr_begin(tt__lr_new(&linear_class, optimizer, number));
}

/* ---- LambdaLR ---- */

static double lambda_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)lr;
    return s->base_lrs[g] * s->lambda(s->last_epoch, (int64_t)g, s->user);
}

static const tt__lr_class lambda_class = {.name = "tt_lambda_lr", .rate = lambda_rate};

tt_lr_scheduler *tt_lambda_lr(tt_optimizer *optimizer, tt_lr_lambda lambda, void *user) {
    if (!lambda)
        return tt__fail_null(TT_ERR_INVALID, "%s: the function is NULL", lambda_class.name);
    tt_lr_scheduler *s = tt__lr_new(&lambda_class, optimizer, NULL);
    if (s) {
        s->lambda = lambda;
        s->user = user;
    }
    return tt__lr_begin(s);
}

/* ---- ReduceLROnPlateau: a smaller rate when a metric no longer gets better ---- */

enum {
    PLATEAU_MAX,
    PLATEAU_FACTOR,
    PLATEAU_PATIENCE,
    PLATEAU_THRESHOLD,
    PLATEAU_ABS,
    PLATEAU_COOLDOWN,
    PLATEAU_MIN_LR,
    PLATEAU_EPS,
    PLATEAU_BEST,
    PLATEAU_NUM_BAD_EPOCHS,
    PLATEAU_COOLDOWN_COUNTER,
    PLATEAU_NUMBERS
};
static const char *const plateau_names[PLATEAU_NUMBERS] = {
    "mode_max", "factor", "patience", "threshold",      "threshold_abs",   "cooldown",
    "min_lr",   "eps",    "best",     "num_bad_epochs", "cooldown_counter"};

static bool is_better(const double *n, double metric) {
    const double best = n[PLATEAU_BEST], threshold = n[PLATEAU_THRESHOLD];
    if (n[PLATEAU_MAX] != 0)
        return metric > (n[PLATEAU_ABS] != 0 ? best + threshold : best * (threshold + 1.0));
    return metric < (n[PLATEAU_ABS] != 0 ? best - threshold : best * (1.0 - threshold));
}

static void reduce_lr(tt_lr_scheduler *s) {
    for (size_t g = 0; g < s->groups; g++) {
        const double lr = tt__lr_get(s, g), smaller = lr * s->number[PLATEAU_FACTOR];
        const double next = smaller < s->number[PLATEAU_MIN_LR] ? s->number[PLATEAU_MIN_LR] : smaller;
        if (lr - next > s->number[PLATEAU_EPS])
            tt__lr_set(s, g, next);
    }
}

static tt_status plateau_step(tt_lr_scheduler *s, double metric) {
    double *n = s->number;
    s->last_epoch++;
    n[PLATEAU_NUM_BAD_EPOCHS]++;
    if (is_better(n, metric)) {
        n[PLATEAU_BEST] = metric;
        n[PLATEAU_NUM_BAD_EPOCHS] = 0;
    }
    if (n[PLATEAU_COOLDOWN_COUNTER] > 0) {
        n[PLATEAU_COOLDOWN_COUNTER]--;
        n[PLATEAU_NUM_BAD_EPOCHS] = 0;
    }
    if (n[PLATEAU_NUM_BAD_EPOCHS] > n[PLATEAU_PATIENCE]) {
        reduce_lr(s);
        n[PLATEAU_COOLDOWN_COUNTER] = n[PLATEAU_COOLDOWN];
        n[PLATEAU_NUM_BAD_EPOCHS] = 0;
    }
    tt__lr_note(s);
    return TT_OK;
}

static tt_status plateau_check(const char *who, const tt_optimizer *o, const double *n) {
    (void)o;
    for (int i = PLATEAU_FACTOR; i < PLATEAU_BEST; i++)
        TT__TRY(tt__optim_check_number(who, plateau_names[i], n[i], 0));
    if (n[PLATEAU_FACTOR] >= 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a factor below 1, got %g", who, n[PLATEAU_FACTOR]);
    return TT_OK;
}

static const tt__lr_class plateau_class = {.name = "tt_reduce_lr_on_plateau",
                                           .numbers = PLATEAU_NUMBERS,
                                           .number_names = plateau_names,
                                           .check = plateau_check,
                                           .step_metric = plateau_step};

tt_lr_scheduler *tt_reduce_lr_on_plateau_with(const tt_reduce_lr_on_plateau_args *args, size_t size) {
    tt_reduce_lr_on_plateau_args a;
    TT__ARGS_COPY(a, args, size);
    const double number[PLATEAU_NUMBERS] = {[PLATEAU_MAX] = a.mode_max,
                                            [PLATEAU_FACTOR] = a.factor == 0 ? 0.1 : a.factor,
                                            [PLATEAU_PATIENCE] = (double)a.patience,
                                            [PLATEAU_THRESHOLD] = a.threshold == 0 ? 1e-4 : a.threshold,
                                            [PLATEAU_ABS] = a.threshold_abs,
                                            [PLATEAU_COOLDOWN] = (double)a.cooldown,
                                            [PLATEAU_MIN_LR] = a.min_lr,
                                            [PLATEAU_EPS] = a.eps == 0 ? 1e-8 : a.eps,
                                            [PLATEAU_BEST] = a.mode_max ? -INFINITY : INFINITY};
    tt_lr_scheduler *s = tt__lr_new(&plateau_class, a.optimizer, number);
    if (s) {
        s->last_epoch = 0;
        tt__lr_note(s);
    }
    return s;
}
