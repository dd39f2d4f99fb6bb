/* ConstantLR and LinearLR: a factor for the first epochs, which stays, or changes by equal steps. */
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

enum { START_FACTOR, TOTAL_ITERS, END_FACTOR, LINEAR_NUMBERS };
static const char *const constant_names[] = {[START_FACTOR] = "factor", [TOTAL_ITERS] = "total_iters"};
static const char *const linear_names[] = {
    [START_FACTOR] = "start_factor", [TOTAL_ITERS] = "total_iters", [END_FACTOR] = "end_factor"};

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
