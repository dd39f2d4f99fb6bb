/* Adagrad for one element type: see rules.h. */

/* Inlined with constant flags, which makes one loop for each combination of them. */
RULE_LOOP void NAME(adagrad_loop)(const tt__update *u, bool decay, bool fresh) {
    const double *option = u->option;
    const REAL wd = (REAL)option[TT__ADAGRAD_WEIGHT_DECAY], eps = (REAL)option[TT__ADAGRAD_EPS];
    const REAL size = (REAL) - (option[TT__ADAGRAD_LR] / (1 + ((double)u->step - 1) * option[TT__ADAGRAD_LR_DECAY]));
    const REAL initial = (REAL)option[TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE];
    const REAL sign = option[TT__ADAGRAD_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict sum = (REAL *)u->state[0];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        sum[i] = FMA(d, d, fresh ? initial : sum[i]);
        p[i] = p[i] + size * d / (SQRT(sum[i]) + eps);
    }
}

RULE void NAME(adagrad)(const tt__update *u) {
    bool decay = u->option[TT__ADAGRAD_WEIGHT_DECAY] != 0;
    if (decay && u->fresh[0])
        NAME(adagrad_loop)(u, true, true);
    else if (decay)
        NAME(adagrad_loop)(u, true, false);
    else if (u->fresh[0])
        NAME(adagrad_loop)(u, false, true);
    else
        NAME(adagrad_loop)(u, false, false);
}
