#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

static const char *const adam_options[] = {[TT__ADAM_LR] = "lr",
                                           [TT__ADAM_BETA1] = "beta1",
                                           [TT__ADAM_BETA2] = "beta2",
                                           [TT__ADAM_EPS] = "eps",
                                           [TT__ADAM_WEIGHT_DECAY] = "weight_decay",
                                           [TT__ADAM_AMSGRAD] = "amsgrad",
                                           [TT__ADAM_MAXIMIZE] = "maximize"};
static const char *const adam_slots[] = {
    [TT__ADAM_EXP_AVG] = "exp_avg", [TT__ADAM_EXP_AVG_SQ] = "exp_avg_sq", [TT__ADAM_MAX_EXP_AVG_SQ] = "max_exp_avg_sq"};

static tt_status adam_check(const char *who, const double *option) {
    for (int i = 0; i < TT__ADAM_OPTIONS; i++)
        TT__TRY(tt__optim_check_number(who, adam_options[i], option[i], 0));
    for (int i = TT__ADAM_BETA1; i <= TT__ADAM_BETA2; i++)
        if (option[i] >= 1)
            return tt__fail(TT_ERR_INVALID, "%s: expected %s below 1, got %g", who, adam_options[i], option[i]);
    return TT_OK;
}

static bool adam_uses(const double *option, int slot) {
    return slot != TT__ADAM_MAX_EXP_AVG_SQ || option[TT__ADAM_AMSGRAD] != 0;
}

static const tt__rule_kernels *adam_kernels(void) { return TT__LEVEL_CHOOSE(tt__adam_kernels); }

static const tt__rule_kernels *adamw_kernels(void) { return TT__LEVEL_CHOOSE(tt__adamw_kernels); }

#define ADAM_CLASS(name_, kernels_, rule_)                                                                   \
    {                                                                                                        \
        .name = (name_), .options = TT__ADAM_OPTIONS, .option_names = adam_options, .slots = TT__ADAM_SLOTS, \
        .slot_names = adam_slots, .counts_steps = true, .betas = TT__ADAM_BETA1, .check = adam_check,        \
        .uses = adam_uses, .kernels = (kernels_), .rule = (rule_)                                            \
    }
static const tt__optimizer_class adam_class = ADAM_CLASS("tt_adam", adam_kernels, TT__RULE_ADAM);
static const tt__optimizer_class adamw_class = ADAM_CLASS("tt_adamw", adamw_kernels, TT__RULE_ADAMW);

static tt_optimizer *adam_new(const tt__optimizer_class *cls, const tt_adam_args *a) {
    const double option[TT__ADAM_OPTIONS] = {[TT__ADAM_LR] = a->lr,
                                             [TT__ADAM_BETA1] = a->beta1 == 0 ? 0.9 : a->beta1,
                                             [TT__ADAM_BETA2] = a->beta2 == 0 ? 0.999 : a->beta2,
                                             [TT__ADAM_EPS] = a->eps == 0 ? 1e-8 : a->eps,
                                             [TT__ADAM_WEIGHT_DECAY] = a->weight_decay,
                                             [TT__ADAM_AMSGRAD] = a->amsgrad,
                                             [TT__ADAM_MAXIMIZE] = a->maximize};
    return tt__optimizer_new(cls, a->params, option);
}

tt_optimizer *tt_adam_with(const tt_adam_args *args, size_t size) {
    tt_adam_args a;
    TT__ARGS_COPY(a, args, size);
    return adam_new(&adam_class, &a);
}

tt_optimizer *tt_adamw_with(const tt_adamw_args *args, size_t size) {
    tt_adamw_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_adam_args as_adam = {.params = a.params,
                                  .lr = a.lr,
                                  .beta1 = a.beta1,
                                  .beta2 = a.beta2,
                                  .eps = a.eps,
                                  .weight_decay = a.weight_decay,
                                  .amsgrad = a.amsgrad,
                                  .maximize = a.maximize};
    return adam_new(&adamw_class, &as_adam);
}
