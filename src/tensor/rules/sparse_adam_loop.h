/* SparseAdam for one element type: see rules.h. */
RULE void NAME(sparse_adam)(const tt__update *u) {
    const double *option = u->option, beta1 = option[TT__SPARSE_ADAM_BETA1], beta2 = option[TT__SPARSE_ADAM_BETA2];
    const REAL rest1 = (REAL)(1 - beta1), rest2 = (REAL)(1 - beta2), eps = (REAL)option[TT__SPARSE_ADAM_EPS];
    const REAL size = (REAL) - (option[TT__SPARSE_ADAM_LR] * sqrt(1 - u->power[1]) / (1 - u->power[0]));
    const REAL sign = option[TT__SPARSE_ADAM_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict m = (REAL *)u->state[TT__SPARSE_ADAM_EXP_AVG];
    REAL *restrict v = (REAL *)u->state[TT__SPARSE_ADAM_EXP_AVG_SQ];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = sign * g[i];
        m[i] = m[i] + (d - m[i]) * rest1;
        v[i] = v[i] + (d * d - v[i]) * rest2;
        p[i] = p[i] + size * (m[i] / (SQRT(v[i]) + eps));
    }
}
