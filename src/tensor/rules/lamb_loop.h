/* LAMB for one element type: see rules.h. */

/* The direction of a step. `m_size`, `v_size`: what the moments are divided by. */
RULE_LOOP REAL NAME(lamb_direction)(REAL p, REAL m, REAL v, REAL m_size, REAL v_size, REAL eps, REAL decay) {
    return m / m_size / (SQRT(v / v_size) + eps) + decay * p;
}

#define LAMB_CONSTANTS                                                                                           \
    const double *option = u->option;                                                                            \
    const bool corrected = option[TT__LAMB_BIAS_CORRECTION] != 0, decoupled = option[TT__LAMB_ADAM_W_MODE] != 0; \
    const REAL m_size = corrected ? (REAL)(1 - u->power[0]) : 1;                                                 \
    const REAL v_size = corrected ? (REAL)(1 - u->power[1]) : 1;                                                 \
    const REAL eps = (REAL)option[TT__LAMB_EPS], decay = (REAL)option[TT__LAMB_WEIGHT_DECAY];                    \
    const REAL of_p = decoupled ? decay : 0;                                                                     \
    REAL *restrict p = (REAL *)u->p, *restrict m = (REAL *)u->state[TT__LAMB_EXP_AVG];                           \
    REAL *restrict v = (REAL *)u->state[TT__LAMB_EXP_AVG_SQ]

/* Directions whose squares are added up together, in as many lanes. */
enum { NAME(LAMB_LANES) = RULE_LANES };

RULE void NAME(lamb_measure)(const tt__update *u) {
    LAMB_CONSTANTS;
    const double limit = option[TT__LAMB_MAX_GRAD_NORM];
    const double beta1 = option[TT__LAMB_BETA1], beta2 = option[TT__LAMB_BETA2];
    const double clip = limit > 0 && u->grad_norm > limit ? u->grad_norm / limit : 1;
    const REAL size = (REAL)(option[TT__LAMB_MAXIMIZE] != 0 ? -clip : clip), of_g = decoupled ? 0 : decay;
    const REAL b1 = (REAL)beta1, b2 = (REAL)beta2, rest2 = (REAL)(1 - beta2);
    const REAL rest1 = option[TT__LAMB_GRAD_AVERAGING] != 0 ? (REAL)(1 - beta1) : 1;
    const REAL *restrict g = (const REAL *)u->g;
    double of_params[NAME(LAMB_LANES)] = {0}, of_steps[NAME(LAMB_LANES)] = {0};
    for (int64_t begin = RULE_FIRST * NAME(LAMB_LANES); begin < u->n; begin += RULE_STRIDE * NAME(LAMB_LANES)) {
        const int lanes = u->n - begin < NAME(LAMB_LANES) ? (int)(u->n - begin) : NAME(LAMB_LANES);
        for (int l = 0; l < lanes; l++) {
            const int64_t i = begin + l;
            const REAL d = g[i] / size + of_g * p[i];
            m[i] = m[i] * b1 + rest1 * d;
            v[i] = v[i] * b2 + rest2 * d * d;
            const double x = p[i], s = NAME(lamb_direction)(p[i], m[i], v[i], m_size, v_size, eps, of_p);
            of_params[l] += x * x;
            of_steps[l] += s * s;
        }
    }
    for (int l = 0; l < NAME(LAMB_LANES); l++) {
        u->sums[0] += of_params[l];
        u->sums[1] += of_steps[l];
    }
}

RULE void NAME(lamb)(const tt__update *u) {
    LAMB_CONSTANTS;
    const REAL ratio = (REAL)u->ratio;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE)
        p[i] -= ratio * NAME(lamb_direction)(p[i], m[i], v[i], m_size, v_size, eps, of_p);
}
#undef LAMB_CONSTANTS
