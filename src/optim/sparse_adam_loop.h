/* SparseAdam for one element type: see rule_types.h. */
static void NAME(sparse_adam)(const tt__update *u) {
    const double *option = u->option, beta1 = option[TT__SPARSE_ADAM_BETA1], beta2 = option[TT__SPARSE_ADAM_BETA2];
    const double step = (double)u->step;
    const REAL rest1 = (REAL)(1 - beta1), rest2 = (REAL)(1 - beta2), eps = (REAL)option[TT__SPARSE_ADAM_EPS];
    const REAL size = (REAL) - (option[TT__SPARSE_ADAM_LR] * sqrt(1 - pow(beta2, step)) / (1 - pow(beta1, step)));
    const REAL sign = option[TT__SPARSE_ADAM_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = u->p, *restrict m = u->state[TT__SPARSE_ADAM_EXP_AVG];
    REAL *restrict v = u->state[TT__SPARSE_ADAM_EXP_AVG_SQ];
    const REAL *restrict g = u->g;
    for (int64_t i = 0; i < u->n; i++) {
        REAL d = sign * g[i];
        m[i] = m[i] + (d - m[i]) * rest1;
        v[i] = v[i] + (d * d - v[i]) * rest2;
        p[i] = p[i] + size * (m[i] / (SQRT(v[i]) + eps));
    }
}
