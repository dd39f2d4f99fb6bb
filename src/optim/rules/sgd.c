#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

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
