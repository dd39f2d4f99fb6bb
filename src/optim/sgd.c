#include "optim/sgd.h"

#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"

#include <math.h>

/* The reference, and what f64 uses. */
static void step_f64(int64_t n, double *p, const double *g, double *buf, bool fresh, const tt__sgd_rule *rule) {
    for (int64_t i = 0; i < n; i++) {
        double d = rule->weight_decay != 0 ? fma(p[i], rule->weight_decay, g[i]) : g[i];
        if (buf) {
            buf[i] = fresh ? d : fma(d, 1 - rule->dampening, buf[i] * rule->momentum);
            d = rule->nesterov ? fma(buf[i], rule->momentum, d) : buf[i];
        }
        p[i] = fma(d, -rule->lr, p[i]);
    }
}

static void update(const tt_optimizer *optimizer, const tt__update *u) {
    const tt__sgd_rule *rule = tt__optimizer_options(optimizer);
    if (u->dtype == TT_F32)
        tt__sgd()->step(u->n, u->p, u->g, u->state[0], u->fresh[0], rule);
    else
        step_f64(u->n, u->p, u->g, u->state[0], u->fresh[0], rule);
}

static const tt__optimizer_class sgd_class = {
    .name = "tt_sgd", .slots = 1, .slot_names = {"momentum_buffer"}, .update = update};

static tt_status check(const tt_sgd_args *a) {
    const struct {
        const char *name;
        double value, least;
    } numbers[] = {{"lr", a->lr, 0},
                   {"momentum", a->momentum, 0},
                   {"dampening", a->dampening, -INFINITY},
                   {"weight_decay", a->weight_decay, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i].value) || numbers[i].value < numbers[i].least)
            return tt__fail(TT_ERR_INVALID, "tt_sgd: expected a finite %s%s, got %g", numbers[i].name,
                            numbers[i].least == 0 ? " of at least 0" : "", numbers[i].value);
    if (a->nesterov && (a->momentum == 0 || a->dampening != 0))
        return tt__fail(TT_ERR_INVALID,
                        "tt_sgd: nesterov needs momentum above 0 and no dampening, got momentum %g, dampening %g",
                        a->momentum, a->dampening);
    return TT_OK;
}

tt_optimizer *tt_sgd_with(const tt_sgd_args *args, size_t size) {
    tt_sgd_args a;
    TT__ARGS_COPY(a, args, size);
    if (check(&a))
        return NULL;
    tt__sgd_rule rule = {a.lr, a.momentum, a.dampening, a.weight_decay, a.nesterov};
    return tt__optimizer_new(&sgd_class, a.params, a.momentum != 0, &rule, sizeof rule);
}
