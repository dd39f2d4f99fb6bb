#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

static const char *const adagrad_options[] = {[TT__ADAGRAD_LR] = "lr",
                                              [TT__ADAGRAD_LR_DECAY] = "lr_decay",
                                              [TT__ADAGRAD_EPS] = "eps",
                                              [TT__ADAGRAD_WEIGHT_DECAY] = "weight_decay",
                                              [TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE] = "initial_accumulator_value",
                                              [TT__ADAGRAD_MAXIMIZE] = "maximize"};
static const char *const adagrad_slots[] = {"sum"};

static tt_status adagrad_check(const char *who, const double *option) {
    for (int i = 0; i < TT__ADAGRAD_OPTIONS; i++)
        TT__TRY(tt__optim_check_number(who, adagrad_options[i], option[i], 0));
    return TT_OK;
}

static bool adagrad_uses(const double *option, int slot) {
    (void)option;
    (void)slot;
    return true;
}

static bool adagrad_takes_rows(const double *option) { return option[TT__ADAGRAD_WEIGHT_DECAY] == 0; }

static double adagrad_begins_as(const double *option) { return option[TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE]; }

static const tt__rule_kernels *adagrad_kernels(void) { return TT__LEVEL_CHOOSE(tt__adagrad_kernels); }

static const tt__optimizer_class adagrad_class = {.name = "tt_adagrad",
                                                  .options = TT__ADAGRAD_OPTIONS,
                                                  .option_names = adagrad_options,
                                                  .slots = 1,
                                                  .slot_names = adagrad_slots,
                                                  .counts_steps = true,
                                                  .check = adagrad_check,
                                                  .uses = adagrad_uses,
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
