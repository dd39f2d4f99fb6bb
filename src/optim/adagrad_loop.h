/* Adagrad for one element type: see rule_types.h. */

/* One loop for each combination of these, as they are constants where this is inlined. */
__attribute__((always_inline)) static inline void NAME(adagrad_loop)(const tt__update *u, bool decay, bool fresh) {
    const double *option = u->option;
    const REAL wd = (REAL)option[TT__ADAGRAD_WEIGHT_DECAY], eps = (REAL)option[TT__ADAGRAD_EPS];
    const REAL size = (REAL) - (option[TT__ADAGRAD_LR] / (1 + ((double)u->step - 1) * option[TT__ADAGRAD_LR_DECAY]));
    const REAL initial = (REAL)option[TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE];
    const REAL sign = option[TT__ADAGRAD_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = u->p, *restrict sum = u->state[0];
    const REAL *restrict g = u->g;
    for (int64_t i = 0; i < u->n; i++) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        sum[i] = FMA(d, d, fresh ? initial : sum[i]);
        p[i] = p[i] + size * d / (SQRT(sum[i]) + eps);
    }
}

static void NAME(adagrad)(const tt__update *u) {
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
