/* Rates by mean squares of gradients: Adagrad, Adadelta, RMSprop. */
#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

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
