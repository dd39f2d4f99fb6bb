#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

static const char *const sparse_adam_options[] = {[TT__SPARSE_ADAM_LR] = "lr",
                                                  [TT__SPARSE_ADAM_BETA1] = "beta1",
                                                  [TT__SPARSE_ADAM_BETA2] = "beta2",
                                                  [TT__SPARSE_ADAM_EPS] = "eps",
                                                  [TT__SPARSE_ADAM_MAXIMIZE] = "maximize"};
static const char *const sparse_adam_slots[] = {
    [TT__SPARSE_ADAM_EXP_AVG] = "exp_avg", [TT__SPARSE_ADAM_EXP_AVG_SQ] = "exp_avg_sq"};

static tt_status sparse_adam_check(const char *who, const double *option) {
    for (int i = 0; i < TT__SPARSE_ADAM_OPTIONS; i++)
        TT__TRY(tt__optim_check_number(who, sparse_adam_options[i], option[i], 0));
    for (int i = TT__SPARSE_ADAM_BETA1; i <= TT__SPARSE_ADAM_BETA2; i++)
        if (option[i] >= 1)
            return tt__fail(TT_ERR_INVALID, "%s: expected %s below 1, got %g", who, sparse_adam_options[i], option[i]);
    return TT_OK;
}

static bool sparse_adam_uses(const double *option, int slot) {
    (void)option;
    (void)slot;
    return true;
}

static bool sparse_adam_takes_rows(const double *option) {
    (void)option;
    return true;
}

static const tt__rule_kernels *sparse_adam_kernels(void) { return TT__LEVEL_CHOOSE(tt__sparse_adam_kernels); }

static const tt__optimizer_class sparse_adam_class = {.name = "tt_sparse_adam",
                                                      .options = TT__SPARSE_ADAM_OPTIONS,
                                                      .option_names = sparse_adam_options,
                                                      .slots = TT__SPARSE_ADAM_SLOTS,
                                                      .slot_names = sparse_adam_slots,
                                                      .counts_steps = true,
                                                      .check = sparse_adam_check,
                                                      .uses = sparse_adam_uses,
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
