/* Schedulers that anneal rates: CosineAnnealingLR, CosineAnnealingWarmRestarts (Loshchilov and Hutter, SGDR, ICLR
 * 2017), OneCycleLR (Smith and Topin, 2018). */
#include "base/args.h"
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

#include <math.h>

/* ---- CosineAnnealingLR ---- */

enum { ANNEALING_T_MAX, ANNEALING_ETA_MIN, ANNEALING_NUMBERS };
static const char *const annealing_names[ANNEALING_NUMBERS] = {"T_max", "eta_min"};

static tt_status annealing_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    TT__TRY(tt__lr_check_count(who, "T_max", number[ANNEALING_T_MAX], 1));
    return tt__optim_check_number(who, "eta_min", number[ANNEALING_ETA_MIN], 0);
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
static const char *const restarts_names[RESTARTS_NUMBERS] = {"T_0", "T_mult", "eta_min", "T_cur", "T_i"};

static tt_status restarts_check(const char *who, const tt_optimizer *o, const double *number) {
    (void)o;
    TT__TRY(tt__lr_check_count(who, "T_0", number[RESTARTS_T_0], 1));
    TT__TRY(tt__lr_check_count(who, "T_mult", number[RESTARTS_T_MULT], 1));
    return tt__optim_check_number(who, "eta_min", number[RESTARTS_ETA_MIN], 0);
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

/* ---- OneCycleLR: the rate rises to max_lr and falls to far below its first value; momentum goes the other way. */

enum {
    CYCLE_MAX_LR,
    CYCLE_TOTAL_STEPS,
    CYCLE_PCT_START,
    CYCLE_LINEAR,
    CYCLE_MOMENTUM,
    CYCLE_BASE_MOMENTUM,
    CYCLE_MAX_MOMENTUM,
    CYCLE_DIV_FACTOR,
    CYCLE_FINAL_DIV_FACTOR,
    CYCLE_THREE_PHASE,
    CYCLE_NUMBERS
};
static const char *const cycle_names[CYCLE_NUMBERS] = {
    "max_lr",        "total_steps",  "pct_start",  "anneal_linear",    "cycle_momentum",
    "base_momentum", "max_momentum", "div_factor", "final_div_factor", "three_phase"};

/* A phase: its end, and its changes of rate and momentum. */
typedef struct cycle_phase {
    double end_step, start_lr, end_lr, start_momentum, end_momentum;
} cycle_phase;

static int cycle_phases(const double *n, cycle_phase *phase) {
    const double top = n[CYCLE_MAX_LR], initial = top / n[CYCLE_DIV_FACTOR];
    const double least = initial / n[CYCLE_FINAL_DIV_FACTOR], total = n[CYCLE_TOTAL_STEPS];
    const double low = n[CYCLE_BASE_MOMENTUM], high = n[CYCLE_MAX_MOMENTUM];
    phase[0] = (cycle_phase){n[CYCLE_PCT_START] * total - 1, initial, top, high, low};
    if (n[CYCLE_THREE_PHASE] == 0) {
        phase[1] = (cycle_phase){total - 1, top, least, low, high};
        return 2;
    }
    phase[1] = (cycle_phase){2 * n[CYCLE_PCT_START] * total - 2, top, initial, low, high};
    phase[2] = (cycle_phase){total - 1, initial, least, high, high};
    return 3;
}

static double anneal(const double *n, double start, double end, double part) {
    if (n[CYCLE_LINEAR] != 0)
        return (end - start) * part + start;
    return end + (start - end) / 2.0 * (cos(M_PI * part) + 1);
}

/* Find the phase that an epoch is in; returns how much of it has passed. */
static double cycle_part(const double *n, double epoch, cycle_phase *in) {
    cycle_phase phase[3];
    const int last = cycle_phases(n, phase) - 1;
    int i = 0;
    while (i < last && epoch > phase[i].end_step)
        i++;
    const double start = i ? phase[i - 1].end_step : 0;
    *in = phase[i];
    return (epoch - start) / (in->end_step - start);
}

static double cycle_rate(const tt_lr_scheduler *s, size_t g, double lr) {
    (void)g;
    (void)lr;
    cycle_phase in;
    double part = cycle_part(s->number, (double)s->last_epoch, &in);
    return anneal(s->number, in.start_lr, in.end_lr, part);
}

/* Return the place of the option that is cycled; -1: the optimizer has none. */
static int momentum_option(const tt_optimizer *o) {
    int at = tt__optim_option_index(o->cls, "momentum");
    return at >= 0 ? at : tt__optim_option_index(o->cls, "beta1");
}

static tt_status cycle_step(tt_lr_scheduler *s, bool again) {
    const int64_t total = (int64_t)s->number[CYCLE_TOTAL_STEPS];
    if (!again && s->last_epoch >= total)
        return tt__fail(TT_ERR_STATE, "tt_lr_scheduler_step: %s: expected at most %lld steps, as total_steps says",
                        s->cls->name, (long long)total);
    TT__TRY(tt__lr_step_rates(s, again));
    if (s->number[CYCLE_MOMENTUM] == 0)
        return TT_OK;
    cycle_phase in;
    const double part = cycle_part(s->number, (double)s->last_epoch, &in);
    const double momentum = anneal(s->number, in.start_momentum, in.end_momentum, part);
    for (size_t g = 0; g < s->groups; g++)
        s->optimizer->groups[g].option[momentum_option(s->optimizer)] = momentum;
    return TT_OK;
}

static tt_status cycle_check(const char *who, const tt_optimizer *o, const double *n) {
    TT__TRY(tt__lr_check_count(who, "total_steps", n[CYCLE_TOTAL_STEPS], 1));
    for (int i = 0; i < CYCLE_NUMBERS; i++)
        TT__TRY(i == CYCLE_DIV_FACTOR || i == CYCLE_FINAL_DIV_FACTOR
                    ? tt__lr_check_above(who, cycle_names[i], n[i])
                    : tt__optim_check_number(who, cycle_names[i], n[i], 0));
    if (n[CYCLE_PCT_START] > 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected pct_start of at most 1, got %g", who, n[CYCLE_PCT_START]);
    if (n[CYCLE_MAX_MOMENTUM] >= 1 || n[CYCLE_BASE_MOMENTUM] >= 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected momenta below 1, got %g and %g", who, n[CYCLE_BASE_MOMENTUM],
                        n[CYCLE_MAX_MOMENTUM]);
    if (n[CYCLE_MOMENTUM] != 0 && momentum_option(o) < 0)
        return tt__fail(TT_ERR_INVALID, "%s: %s has neither momentum nor beta1 to cycle: ask for .no_cycle_momentum",
                        who, o->cls->name);
    return TT_OK;
}

static const tt__lr_class cycle_class = {.name = "tt_one_cycle_lr",
                                         .numbers = CYCLE_NUMBERS,
                                         .number_names = cycle_names,
                                         .check = cycle_check,
                                         .rate = cycle_rate,
                                         .step = cycle_step};

static double cycle_default(double value, double by_default) { return value == 0 ? by_default : value; }

tt_lr_scheduler *tt_one_cycle_lr_with(const tt_one_cycle_lr_args *args, size_t size) {
    tt_one_cycle_lr_args a;
    TT__ARGS_COPY(a, args, size);
    const double number[CYCLE_NUMBERS] = {[CYCLE_MAX_LR] = a.max_lr,
                                          [CYCLE_TOTAL_STEPS] = (double)a.total_steps,
                                          [CYCLE_PCT_START] = cycle_default(a.pct_start, 0.3),
                                          [CYCLE_LINEAR] = a.anneal_linear,
                                          [CYCLE_MOMENTUM] = !a.no_cycle_momentum,
                                          [CYCLE_BASE_MOMENTUM] = cycle_default(a.base_momentum, 0.85),
                                          [CYCLE_MAX_MOMENTUM] = cycle_default(a.max_momentum, 0.95),
                                          [CYCLE_DIV_FACTOR] = cycle_default(a.div_factor, 25),
                                          [CYCLE_FINAL_DIV_FACTOR] = cycle_default(a.final_div_factor, 1e4),
                                          [CYCLE_THREE_PHASE] = a.three_phase};
    tt_lr_scheduler *s = tt__lr_new(&cycle_class, a.optimizer, number);
    for (size_t g = 0; s && g < s->groups; g++) /* other schedulers begin there too, as in PyTorch */
        s->base_lrs[g] = s->optimizer->groups[g].initial_lr = a.max_lr / number[CYCLE_DIV_FACTOR];
    return tt__lr_begin(s);
}
