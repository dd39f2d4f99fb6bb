#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

static const char *const rmsprop_options[] = {[TT__RMSPROP_LR] = "lr",
                                              [TT__RMSPROP_ALPHA] = "alpha",
                                              [TT__RMSPROP_EPS] = "eps",
                                              [TT__RMSPROP_WEIGHT_DECAY] = "weight_decay",
                                              [TT__RMSPROP_MOMENTUM] = "momentum",
                                              [TT__RMSPROP_CENTERED] = "centered",
                                              [TT__RMSPROP_MAXIMIZE] = "maximize"};
static const char *const rmsprop_slots[] = {[TT__RMSPROP_SQUARE_AVG] = "square_avg",
                                            [TT__RMSPROP_MOMENTUM_BUFFER] = "momentum_buffer",
                                            [TT__RMSPROP_GRAD_AVG] = "grad_avg"};

static tt_status rmsprop_check(const char *who, const double *option) {
    for (int i = 0; i < TT__RMSPROP_OPTIONS; i++)
        TT__TRY(tt__optim_check_number(who, rmsprop_options[i], option[i], 0));
    return TT_OK;
}

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
                                                  .check = rmsprop_check,
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
