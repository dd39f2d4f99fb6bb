/* Adam and its relatives: Adam, AdamW, SparseAdam, LAMB. */
#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

#include <math.h>

static const char *const adam_options[TT__ADAM_OPTIONS] = {"lr",           "beta1",   "beta2",   "eps",
                                                           "weight_decay", "amsgrad", "maximize"};
/* The first two are also those of SparseAdam and LAMB. */
static const char *const adam_slots[TT__ADAM_SLOTS] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

static bool adam_uses(const double *option, int slot) {
    return slot != TT__ADAM_MAX_EXP_AVG_SQ || option[TT__ADAM_AMSGRAD] != 0;
}

static const tt__rule_kernels *adam_kernels(void) { return TT__LEVEL_CHOOSE(tt__adam_kernels); }

static const tt__rule_kernels *adamw_kernels(void) { return TT__LEVEL_CHOOSE(tt__adamw_kernels); }

#define ADAM_CLASS(name_, kernels_, rule_)                                                                   \
    {                                                                                                        \
        .name = (name_), .options = TT__ADAM_OPTIONS, .option_names = adam_options, .slots = TT__ADAM_SLOTS, \
        .slot_names = adam_slots, .counts_steps = true, .betas = TT__ADAM_BETA1, .uses = adam_uses,          \
        .kernels = (kernels_), .rule = (rule_)                                                               \
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

static const char *const sparse_adam_options[TT__SPARSE_ADAM_OPTIONS] = {"lr", "beta1", "beta2", "eps", "maximize"};

static bool sparse_adam_takes_rows(const double *option) {
    (void)option;
    return true;
}

static const tt__rule_kernels *sparse_adam_kernels(void) { return TT__LEVEL_CHOOSE(tt__sparse_adam_kernels); }

static const tt__optimizer_class sparse_adam_class = {.name = "tt_sparse_adam",
                                                      .options = TT__SPARSE_ADAM_OPTIONS,
                                                      .option_names = sparse_adam_options,
                                                      .slots = TT__SPARSE_ADAM_SLOTS,
                                                      .slot_names = adam_slots,
                                                      .counts_steps = true,
                                                      .takes_rows = sparse_adam_takes_rows,
                                                      .takes_rows_only = true,
                                                      .kernels = sparse_adam_kernels,
                                                      .rule = TT__RULE_SPARSE_ADAM,
                                                      .betas = TT__SPARSE_ADAM_BETA1};

tt_optimizer *tt_sparse_adam_with(const tt_sparse_adam_args *args, size_t size) {
    tt_sparse_adam_args a;
    TT__ARGS_COPY(a, args, size);
    const double option[TT__SPARSE_ADAM_OPTIONS] = {[TT__SPARSE_ADAM_LR] = a.lr,
                                                    [TT__SPARSE_ADAM_BETA1] = a.beta1 == 0 ? 0.9 : a.beta1,
                                                    [TT__SPARSE_ADAM_BETA2] = a.beta2 == 0 ? 0.999 : a.beta2,
                                                    [TT__SPARSE_ADAM_EPS] = a.eps == 0 ? 1e-8 : a.eps,
                                                    [TT__SPARSE_ADAM_MAXIMIZE] = a.maximize};
    return tt__optimizer_new(&sparse_adam_class, a.params, option);
}

static const char *const lamb_options[TT__LAMB_OPTIONS] = {
    "lr",          "beta1",      "beta2",   "eps", "weight_decay", "max_grad_norm", "bias_correction", "grad_averaging",
    "adam_w_mode", "use_nvlamb", "maximize"};

static double lamb_ratio(const double *option, const double *sums) { return TT__LAMB_RATIO(option, sums[0], sums[1]); }

static const tt__rule_kernels *lamb_measure(void) { return TT__LEVEL_CHOOSE(tt__lamb_measure_kernels); }

static const tt__rule_kernels *lamb_kernels(void) { return TT__LEVEL_CHOOSE(tt__lamb_kernels); }

static const tt__optimizer_class lamb_class = {.name = "tt_lamb",
                                               .options = TT__LAMB_OPTIONS,
                                               .option_names = lamb_options,
                                               .slots = TT__LAMB_SLOTS,
                                               .slot_names = adam_slots,
                                               .counts_steps = true,
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
