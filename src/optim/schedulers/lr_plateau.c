/* ReduceLROnPlateau: a smaller rate when a metric no longer gets better. */
#include "base/args.h"
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

#include <math.h>

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
        TT__TRY(tt__lr_check_least(who, plateau_names[i], n[i]));
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
