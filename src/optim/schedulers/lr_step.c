/* StepLR, MultiStepLR and ExponentialLR: factors at certain epochs. */
#include "base/args.h"
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

#include <math.h>

static double base_rate(const tt_lr_scheduler *s, size_t g) { return s->base_lrs[g]; }

/* ---- StepLR ---- */

enum { STEP_SIZE, STEP_GAMMA, STEP_NUMBERS };
static const char *const step_names[] = {[STEP_SIZE] = "step_size", [STEP_GAMMA] = "gamma"};

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
