#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

#include <math.h>

static const char *const lamb_options[] = {[TT__LAMB_LR] = "lr",
                                           [TT__LAMB_BETA1] = "beta1",
                                           [TT__LAMB_BETA2] = "beta2",
                                           [TT__LAMB_EPS] = "eps",
                                           [TT__LAMB_WEIGHT_DECAY] = "weight_decay",
                                           [TT__LAMB_MAX_GRAD_NORM] = "max_grad_norm",
                                           [TT__LAMB_BIAS_CORRECTION] = "bias_correction",
                                           [TT__LAMB_GRAD_AVERAGING] = "grad_averaging",
                                           [TT__LAMB_ADAM_W_MODE] = "adam_w_mode",
                                           [TT__LAMB_USE_NVLAMB] = "use_nvlamb",
                                           [TT__LAMB_MAXIMIZE] = "maximize"};
static const char *const lamb_slots[] = {[TT__LAMB_EXP_AVG] = "exp_avg", [TT__LAMB_EXP_AVG_SQ] = "exp_avg_sq"};

static tt_status lamb_check(const char *who, const double *option) {
    for (int i = 0; i < TT__LAMB_OPTIONS; i++)
        TT__TRY(tt__optim_check_number(who, lamb_options[i], option[i], 0));
    for (int i = TT__LAMB_BETA1; i <= TT__LAMB_BETA2; i++)
        if (option[i] >= 1)
            return tt__fail(TT_ERR_INVALID, "%s: expected %s below 1, got %g", who, lamb_options[i], option[i]);
    return TT_OK;
}

static bool lamb_uses(const double *option, int slot) {
    (void)option;
    (void)slot;
    return true;
}

static double lamb_ratio(const double *option, const double *sums) { return TT__LAMB_RATIO(option, sums[0], sums[1]); }

static const tt__rule_kernels *lamb_measure(void) { return TT__LEVEL_CHOOSE(tt__lamb_measure_kernels); }

static const tt__rule_kernels *lamb_kernels(void) { return TT__LEVEL_CHOOSE(tt__lamb_kernels); }

static const tt__optimizer_class lamb_class = {.name = "tt_lamb",
                                               .options = TT__LAMB_OPTIONS,
                                               .option_names = lamb_options,
                                               .slots = TT__LAMB_SLOTS,
                                               .slot_names = lamb_slots,
                                               .counts_steps = true,
                                               .check = lamb_check,
                                               .uses = lamb_uses,
                                               .kernels = lamb_kernels,
                                               .measure = lamb_measure,
                                               .ratio = lamb_ratio,
                                               .measures_grads = true,
                                               .rule = TT__RULE_LAMB,
                                               .betas = TT__LAMB_BETA1};

tt_optimizer *tt_lamb_with(const tt_lamb_args *args, size_t size) {
    tt_lamb_args a;
    TT__ARGS_COPY(a, args, size);
    const double option[TT__LAMB_OPTIONS] = {[TT__LAMB_LR] = a.lr,
                                             [TT__LAMB_BETA1] = a.beta1 == 0 ? 0.9 : a.beta1,
                                             [TT__LAMB_BETA2] = a.beta2 == 0 ? 0.999 : a.beta2,
                                             [TT__LAMB_EPS] = a.eps == 0 ? 1e-6 : a.eps,
                                             [TT__LAMB_WEIGHT_DECAY] = a.weight_decay,
                                             [TT__LAMB_MAX_GRAD_NORM] = a.max_grad_norm == 0 ? 1 : a.max_grad_norm,
                                             [TT__LAMB_BIAS_CORRECTION] = !a.no_bias_correction,
                                             [TT__LAMB_GRAD_AVERAGING] = !a.no_grad_averaging,
                                             [TT__LAMB_ADAM_W_MODE] = !a.no_adam_w_mode,
                                             [TT__LAMB_USE_NVLAMB] = a.use_nvlamb,
                                             [TT__LAMB_MAXIMIZE] = a.maximize};
    return tt__optimizer_new(&lamb_class, a.params, option);
}
