/* CosineAnnealingLR and CosineAnnealingWarmRestarts (Loshchilov and Hutter, SGDR, ICLR 2017). */
#include "base/args.h"
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

#include <math.h>

/* ---- CosineAnnealingLR ---- */

enum { ANNEALING_T_MAX, ANNEALING_ETA_MIN, ANNEALING_NUMBERS };
static const char *const annealing_names[] = {[ANNEALING_T_MAX] = "T_max", [ANNEALING_ETA_MIN] = "eta_min"};

static tt_status annealing_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    TT__TRY(tt__lr_check_count(who, "T_max", number[ANNEALING_T_MAX], 1));
    return tt__lr_check_least(who, "eta_min", number[ANNEALING_ETA_MIN]);
}

static double annealing_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    const double eta_min = s->number[ANNEALING_ETA_MIN], T_max = s->number[ANNEALING_T_MAX];
    const int64_t period = (int64_t)T_max;
    const double epoch = (double)s->last_epoch;
    if (s->last_epoch == 0)
        return lr;
    if ((s->last_epoch - 1 - period) % (2 * period) == 0)
        return lr + (s->base_lrs[g] - eta_min) * (1 - cos(M_PI / T_max)) / 2;
    return (1 + cos(M_PI * epoch / T_max)) / (1 + cos(M_PI * (epoch - 1) / T_max)) * (lr - eta_min) + eta_min;
}

static double annealing_first_rate(const tt_lr_scheduler *s, size_t g) {
    const double eta_min = s->number[ANNEALING_ETA_MIN];
    return eta_min + (s->base_lrs[g] - eta_min) * (1 + cos(0)) / 2;
}

static const tt__lr_class annealing_class = {.name = "tt_cosine_annealing_lr",
                                             .numbers = ANNEALING_NUMBERS,
                                             .number_names = annealing_names,
                                             .check = annealing_check,
                                             .rate = annealing_rate,
                                             .first_rate = annealing_first_rate};

tt_lr_scheduler *tt_cosine_annealing_lr_with(const tt_cosine_annealing_lr_args *args, size_t size) {
    tt_cosine_annealing_lr_args a;
    TT__ARGS_COPY(a, args, size);
    const double number[] = {[ANNEALING_T_MAX] = (double)a.T_max, [ANNEALING_ETA_MIN] = a.eta_min};
    return tt__lr_begin(tt__lr_new(&annealing_class, a.optimizer, number));
}

/* ---- CosineAnnealingWarmRestarts ---- */

enum { RESTARTS_T_0, RESTARTS_T_MULT, RESTARTS_ETA_MIN, RESTARTS_T_CUR, RESTARTS_T_I, RESTARTS_NUMBERS };
static const char *const restarts_names[] = {[RESTARTS_T_0] = "T_0",
                                             [RESTARTS_T_MULT] = "T_mult",
                                             [RESTARTS_ETA_MIN] = "eta_min",
                                             [RESTARTS_T_CUR] = "T_cur",
                                             [RESTARTS_T_I] = "T_i"};

static tt_status restarts_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    TT__TRY(tt__lr_check_count(who, "T_0", number[RESTARTS_T_0], 1));
    TT__TRY(tt__lr_check_count(who, "T_mult", number[RESTARTS_T_MULT], 1));
    return tt__lr_check_least(who, "eta_min", number[RESTARTS_ETA_MIN]);
}

static double restarts_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)lr;
    const double eta_min = s->number[RESTARTS_ETA_MIN];
    const double turn = cos(M_PI * s->number[RESTARTS_T_CUR] / s->number[RESTARTS_T_I]);
    return eta_min + (s->base_lrs[g] - eta_min) * (1 + turn) / 2;
}

static tt_status restarts_step(tt_lr_scheduler *s, bool again) {
    double *n = s->number;
    if (again || s->last_epoch < 0) {
        n[RESTARTS_T_CUR] = 0;
        n[RESTARTS_T_I] = n[RESTARTS_T_0];
    } else if (++n[RESTARTS_T_CUR] >= n[RESTARTS_T_I]) {
        n[RESTARTS_T_CUR] -= n[RESTARTS_T_I];
        n[RESTARTS_T_I] *= n[RESTARTS_T_MULT];
    }
    return tt__lr_step_rates(s, again);
}

static const tt__lr_class restarts_class = {.name = "tt_cosine_annealing_warm_restarts",
                                            .numbers = RESTARTS_NUMBERS,
                                            .number_names = restarts_names,
                                            .check = restarts_check,
                                            .rate = restarts_rate,
                                            .step = restarts_step};

tt_lr_scheduler *tt_cosine_annealing_warm_restarts_with(const tt_cosine_annealing_warm_restarts_args *args,
                                                        size_t size) {
    tt_cosine_annealing_warm_restarts_args a;
    TT__ARGS_COPY(a, args, size);
    const double number[RESTARTS_NUMBERS] = {[RESTARTS_T_0] = (double)a.T_0,
                                             [RESTARTS_T_MULT] = a.T_mult == 0 ? 1 : (double)a.T_mult,
                                             [RESTARTS_ETA_MIN] = a.eta_min};
    return tt__lr_begin(tt__lr_new(&restarts_class, a.optimizer, number));
}
