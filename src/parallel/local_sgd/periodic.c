/* Local SGD: every rank steps on its own, and now and then all average their parameters.
 *
 * S. Stich: Local SGD Converges Fast and Communicates Little. ICLR 2019. */
#include <inttypes.h>
#include <stdio.h>

#include "base/args.h"
#include "base/error.h"
#include "parallel/local_sgd/averager.h"

typedef struct periodic {
    tt_model_averager base;
    int64_t period, warmup_steps;
} periodic;

static bool periodic_due(const tt_model_averager *a) {
    const periodic *p = (const periodic *)a;
    return a->steps >= p->warmup_steps && (a->steps - p->warmup_steps) % p->period == 0;
}

static tt_status periodic_average(tt_model_averager *a, bool all) {
    (void)all;
    return tt__average_plainly(a, a->group);
}

static const tt__averager_class periodic_class = {
    .name = "tt_periodic_model_averager",
    .doing = "the averaging of parameters (tt_periodic_model_averager)",
    .size = sizeof(periodic),
    .due = periodic_due,
    .average = periodic_average,
};

static tt_status check_periodic(const tt_periodic_model_averager_args *a) {
    if (a->period < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a period of 1 step or more, got %" PRId64, periodic_class.name,
                        a->period);
    if (a->warmup_steps < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected .warmup_steps of at least 0, got %" PRId64, periodic_class.name,
                        a->warmup_steps);
    return TT_OK;
}

tt_status tt_periodic_model_averager_with(const tt_periodic_model_averager_args *given, size_t size) {
    tt_periodic_model_averager_args args;
    char period[64], warmup[64];
    TT__ARGS_COPY(args, given, size);
    snprintf(period, sizeof period, "period %" PRId64, args.period);
    snprintf(warmup, sizeof warmup, ".warmup_steps %" PRId64, args.warmup_steps);
    tt__averager_plan plan = {
        &periodic_class, args.out, args.group, args.params, (const char *const[]){period, warmup}, 2, NULL,
        {.group = NULL}};
    TT__TRY(tt__averager_agree(&plan));
    TT__TRY(check_periodic(&args));
    tt_model_averager *a;
    tt_status status = tt__averager_make(&plan, &a);
    if (!status)
        status = tt__flat_take_rank_0(&a->flat, plan.cls->doing);
    if (!status) {
        ((periodic *)a)->period = args.period;
        ((periodic *)a)->warmup_steps = args.warmup_steps;
    }
    return tt__averager_finish(&plan, a, status);
}
