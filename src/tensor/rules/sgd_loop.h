/* SGD for one element type. See rules.h. */

/* Inlined with constant flags, which makes one loop for each combination of them. */
RULE_LOOP void NAME(sgd_loop)(const tt__update *u, bool decay, bool momentum, bool fresh, bool nesterov) {
    const double *option = u->option;
    const REAL lr = -(REAL)option[TT__SGD_LR], m = (REAL)option[TT__SGD_MOMENTUM];
    const REAL wd = (REAL)option[TT__SGD_WEIGHT_DECAY], undamped = (REAL)(1 - option[TT__SGD_DAMPENING]);
    const REAL sign = option[TT__SGD_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p;
    const REAL *restrict g = (const REAL *)u->g;
    REAL *restrict buf = (REAL *)u->state[0];
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        if (momentum) {
            REAL b = fresh ? d : FMA(d, undamped, buf[i] * m);
            buf[i] = b;
            d = nesterov ? FMA(b, m, d) : b;
        }
        p[i] = FMA(d, lr, p[i]);
    }
}

RULE void NAME(sgd)(const tt__update *u) {
    bool nesterov = u->option[TT__SGD_NESTEROV] != 0, fresh = u->fresh[0];
#define SGD_WITH_DECAY(decay)                              \
    do {                                                   \
        if (!u->state[0])                                  \
            NAME(sgd_loop)(u, decay, false, false, false); \
        else if (fresh && nesterov)                        \
            NAME(sgd_loop)(u, decay, true, true, true);    \
        else if (fresh)                                    \
            NAME(sgd_loop)(u, decay, true, true, false);   \
        else if (nesterov)                                 \
            NAME(sgd_loop)(u, decay, true, false, true);   \
        else                                               \
            NAME(sgd_loop)(u, decay, true, false, false);  \
    } while (0)
    if (u->option[TT__SGD_WEIGHT_DECAY] != 0)
        SGD_WITH_DECAY(true);
    else
        SGD_WITH_DECAY(false);
#undef SGD_WITH_DECAY
}
