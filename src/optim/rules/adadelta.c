#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

static const char *const adadelta_options[] = {[TT__ADADELTA_LR] = "lr",
                                               [TT__ADADELTA_RHO] = "rho",
                                               [TT__ADADELTA_EPS] = "eps",
                                               [TT__ADADELTA_WEIGHT_DECAY] = "weight_decay",
                                               [TT__ADADELTA_MAXIMIZE] = "maximize"};
static const char *const adadelta_slots[] = {
    [TT__ADADELTA_SQUARE_AVG] = "square_avg", [TT__ADADELTA_ACC_DELTA] = "acc_delta"};

static tt_status adadelta_check(const char *who, const double *option) {
    for (int i = 0; i < TT__ADADELTA_OPTIONS; i++)
        TT__TRY(tt__optim_check_number(who, adadelta_options[i], option[i], 0));
    if (option[TT__ADADELTA_RHO] > 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected rho of at most 1, got %g", who, option[TT__ADADELTA_RHO]);
    return TT_OK;
}

static bool adadelta_uses(const double *option, int slot) {
    (void)option;
    (void)slot;
    return true;
}

static const tt__rule_kernels *adadelta_kernels(void) { return TT__LEVEL_CHOOSE(tt__adadelta_kernels); }

static const tt__optimizer_class adadelta_class = {.name = "tt_adadelta",
                                                   .options = TT__ADADELTA_OPTIONS,
                                                   .option_names = adadelta_options,
                                                   .slots = TT__ADADELTA_SLOTS,
                                                   .slot_names = adadelta_slots,
                                                   .counts_steps = true,
                                                   .check = adadelta_check,
                                                   .uses = adadelta_uses,
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
