#include "base/error.h"
#include "optim/schedulers/scheduler.h"

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
