/* The optimizers: SGD, Adam, AdamW, SparseAdam, LAMB, Adagrad, Adadelta, RMSprop. A class names the options and slots
 * of a rule (tensor/rules/rules.h), in the order of its enums, and says when it needs which. */
#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

#include <math.h>

/* ---- SGD ---- */

static const char *const sgd_options[TT__SGD_OPTIONS] = {"lr",           "momentum", "dampening",
                                                         "weight_decay", "nesterov", "maximize"};
static const char *const sgd_slots[] = {"momentum_buffer"};

static tt_status sgd_check(const char *who, const double *option) {
    if (option[TT__SGD_NESTEROV] != 0 && (option[TT__SGD_MOMENTUM] == 0 || option[TT__SGD_DAMPENING] != 0))
        return tt__fail(TT_ERR_INVALID,
                        "%s: nesterov needs momentum above 0 and no dampening, got momentum %g, dampening %g", who,
                        option[TT__SGD_MOMENTUM], option[TT__SGD_DAMPENING]);
    return TT_OK;
}

static bool sgd_uses(const double *option, int slot) {
    (void)slot;
    return option[TT__SGD_MOMENTUM] != 0;
}

static bool sgd_takes_rows(const double *option) {
    return option[TT__SGD_MOMENTUM] == 0 && option[TT__SGD_WEIGHT_DECAY] == 0;
}

static const tt__rule_kernels *sgd_kernels(void) { return TT__LEVEL_CHOOSE(tt__sgd_kernels); }

static const tt__optimizer_class sgd_class = {.name = "tt_sgd",
                                              .options = TT__SGD_OPTIONS,
                                              .option_names = sgd_options,
                                              .slots = 1,
                                              .slot_names = sgd_slots,
                                              .signed_option = TT__SGD_DAMPENING,
                                              .check = sgd_check,
                                              .uses = sgd_uses,
                                              .takes_rows = sgd_takes_rows,
                                              .kernels = sgd_kernels,
                                              .rule = TT__RULE_SGD};

tt_optimizer *tt_sgd_with(const tt_sgd_args *args, size_t size) {
    tt_sgd_args a;
    TT__ARGS_COPY(a, args, size);
    const double option[TT__SGD_OPTIONS] = {[TT__SGD_LR] = a.lr,
                                            [TT__SGD_MOMENTUM] = a.momentum,
                                            [TT__SGD_DAMPENING] = a.dampening,
                                            [TT__SGD_WEIGHT_DECAY] = a.weight_decay,
                                            [TT__SGD_NESTEROV] = a.nesterov,
                                            [TT__SGD_MAXIMIZE] = a.maximize};
    return tt__optimizer_new(&sgd_class, a.params, option);
}

/* Adam and its relatives: Adam, AdamW, SparseAdam, LAMB. */

/* ---- Adam and AdamW ---- */

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

/* ---- SparseAdam ---- */

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

/* ---- LAMB ---- */

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

/* Rates by mean squares of gradients: Adagrad, Adadelta, RMSprop. */

/* ---- Adagrad ---- */

static const char *const adagrad_options[TT__ADAGRAD_OPTIONS] = {
    "lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", "maximize"};
static const char *const adagrad_slots[] = {"sum"};

static bool adagrad_takes_rows(const double *option) { return option[TT__ADAGRAD_WEIGHT_DECAY] == 0; }

static double adagrad_begins_as(const double *option) { return option[TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE]; }

static const tt__rule_kernels *adagrad_kernels(void) { return TT__LEVEL_CHOOSE(tt__adagrad_kernels); }

static const tt__optimizer_class adagrad_class = {.name = "tt_adagrad",
                                                  .options = TT__ADAGRAD_OPTIONS,
                                                  .option_names = adagrad_options,
                                                  .slots = 1,
                                                  .slot_names = adagrad_slots,
                                                  .counts_steps = true,
                                                  .takes_rows = adagrad_takes_rows,
                                                  .begins_as = adagrad_begins_as,
                                                  .kernels = adagrad_kernels,
                                                  .rule = TT__RULE_ADAGRAD};

tt_optimizer *tt_adagrad_with(const tt_adagrad_args *args, size_t size) {
    tt_adagrad_args a;
    TT__ARGS_COPY(a, args, size);
    const double option[TT__ADAGRAD_OPTIONS] = {[TT__ADAGRAD_LR] = a.lr,
                                                [TT__ADAGRAD_LR_DECAY] = a.lr_decay,
                                                [TT__ADAGRAD_EPS] = a.eps == 0 ? 1e-10 : a.eps,
                                                [TT__ADAGRAD_WEIGHT_DECAY] = a.weight_decay,
                                                [TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE] = a.initial_accumulator_value,
                                                [TT__ADAGRAD_MAXIMIZE] = a.maximize};
    return tt__optimizer_new(&adagrad_class, a.params, option);
}

/* ---- Adadelta ---- */

static const char *const adadelta_options[TT__ADADELTA_OPTIONS] = {"lr", "rho", "eps", "weight_decay", "maximize"};
static const char *const adadelta_slots[TT__ADADELTA_SLOTS] = {"square_avg", "acc_delta"};

static tt_status adadelta_check(const char *who, const double *option) {
    if (option[TT__ADADELTA_RHO] > 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected rho of at most 1, got %g", who, option[TT__ADADELTA_RHO]);
    return TT_OK;
}

static const tt__rule_kernels *adadelta_kernels(void) { return TT__LEVEL_CHOOSE(tt__adadelta_kernels); }

static const tt__optimizer_class adadelta_class = {.name = "tt_adadelta",
                                                   .options = TT__ADADELTA_OPTIONS,
                                                   .option_names = adadelta_options,
                                                   .slots = TT__ADADELTA_SLOTS,
                                                   .slot_names = adadelta_slots,
                                                   .counts_steps = true,
                                                   .check = adadelta_check,
                                                   .kernels = adadelta_kernels,
                                                   .rule = TT__RULE_ADADELTA};

tt_optimizer *tt_adadelta_with(const tt_adadelta_args *args, size_t size) {
    tt_adadelta_args a;
    TT__ARGS_COPY(a, args, size);
    const double option[TT__ADADELTA_OPTIONS] = {[TT__ADADELTA_LR] = a.lr,
                                                 [TT__ADADELTA_RHO] = a.rho == 0 ? 0.9 : a.rho,
                                                 [TT__ADADELTA_EPS] = a.eps == 0 ? 1e-6 : a.eps,
                                                 [TT__ADADELTA_WEIGHT_DECAY] = a.weight_decay,
                                                 [TT__ADADELTA_MAXIMIZE] = a.maximize};
    return tt__optimizer_new(&adadelta_class, a.params, option);
}

/* ---- RMSprop ---- */

static const char *const rmsprop_options[TT__RMSPROP_OPTIONS] = {"lr",       "alpha",    "eps",     "weight_decay",
                                                                 "momentum", "centered", "maximize"};
static const char *const rmsprop_slots[TT__RMSPROP_SLOTS] = {"square_avg", "momentum_buffer", "grad_avg"};

static bool rmsprop_uses(const double *option, int slot) {
    return slot == TT__RMSPROP_SQUARE_AVG ||
           option[slot == TT__RMSPROP_GRAD_AVG ? TT__RMSPROP_CENTERED : TT__RMSPROP_MOMENTUM] != 0;
}

static const tt__rule_kernels *rmsprop_kernels(void) { return TT__LEVEL_CHOOSE(tt__rmsprop_kernels); }

static const tt__optimizer_class rmsprop_class = {.name = "tt_rmsprop",
                                                  .options = TT__RMSPROP_OPTIONS,
                                                  .option_names = rmsprop_options,
                                                  .slots = TT__RMSPROP_SLOTS,
                                                  .slot_names = rmsprop_slots,
                                                  .counts_steps = true,
                                                  .uses = rmsprop_uses,
                                                  .kernels = rmsprop_kernels,
                                                  .rule = TT__RULE_RMSPROP};

tt_optimizer *tt_rmsprop_with(const tt_rmsprop_args *args, size_t size) {
    tt_rmsprop_args a;
    TT__ARGS_COPY(a, args, size);
    const double option[TT__RMSPROP_OPTIONS] = {[TT__RMSPROP_LR] = a.lr,
                                                [TT__RMSPROP_ALPHA] = a.alpha == 0 ? 0.99 : a.alpha,
                                                [TT__RMSPROP_EPS] = a.eps == 0 ? 1e-8 : a.eps,
                                                [TT__RMSPROP_WEIGHT_DECAY] = a.weight_decay,
                                                [TT__RMSPROP_MOMENTUM] = a.momentum,
                                                [TT__RMSPROP_CENTERED] = a.centered,
                                                [TT__RMSPROP_MAXIMIZE] = a.maximize};
    return tt__optimizer_new(&rmsprop_class, a.params, option);
}
