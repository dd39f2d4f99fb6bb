/* The update rules for one element type, REAL: see rules.h. each_real.h includes this for each type. A rule is inlined
 * with constant flags, which makes one loop for each combination of them. */

/* ---- SGD */

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

/* ---- Adam, AdamW */

RULE_LOOP void NAME(adam_loop)(const tt__update *u, bool decoupled, bool decay, bool amsgrad) {
    const double *option = u->option, lr = option[TT__ADAM_LR], weight_decay = option[TT__ADAM_WEIGHT_DECAY];
    const double beta1 = option[TT__ADAM_BETA1], beta2 = option[TT__ADAM_BETA2];
    const REAL b1 = (REAL)beta1, b2 = (REAL)beta2, rest1 = (REAL)(1 - beta1), rest2 = (REAL)(1 - beta2);
    const REAL size = (REAL) - (lr / (1 - u->power[0])), root = (REAL)sqrt(1 - u->power[1]);
    const REAL eps = (REAL)option[TT__ADAM_EPS], added = (REAL)weight_decay, kept = (REAL)(1 - lr * weight_decay);
    const REAL sign = option[TT__ADAM_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict m = (REAL *)u->state[TT__ADAM_EXP_AVG];
    REAL *restrict v = (REAL *)u->state[TT__ADAM_EXP_AVG_SQ];
    REAL *restrict most = (REAL *)u->state[TT__ADAM_MAX_EXP_AVG_SQ];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL x = decoupled ? p[i] * kept : p[i];
        REAL d = !decoupled && decay ? FMA(x, added, sign * g[i]) : sign * g[i];
        m[i] = FMA(d, rest1, m[i] * b1);
        v[i] = FMA(rest2 * d, d, v[i] * b2);
        REAL w = v[i];
        if (amsgrad) {
            w = w > most[i] || w != w ? w : most[i]; /* NaN stays, as torch.maximum's */
            most[i] = w;
        }
        p[i] = x + size * m[i] / (SQRT(w) / root + eps);
    }
}

RULE void NAME(adam)(const tt__update *u) {
    bool decay = u->option[TT__ADAM_WEIGHT_DECAY] != 0;
    if (u->state[TT__ADAM_MAX_EXP_AVG_SQ])
        NAME(adam_loop)(u, false, decay, true);
    else if (decay)
        NAME(adam_loop)(u, false, true, false);
    else
        NAME(adam_loop)(u, false, false, false);
}

RULE void NAME(adamw)(const tt__update *u) {
    if (u->state[TT__ADAM_MAX_EXP_AVG_SQ])
        NAME(adam_loop)(u, true, true, true);
    else
        NAME(adam_loop)(u, true, true, false);
}

/* ---- SparseAdam */

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

/* ---- Adagrad */

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

/* ---- Adadelta */

RULE_LOOP void NAME(adadelta_loop)(const tt__update *u, bool decay) {
    const double *option = u->option;
    const REAL lr = -(REAL)option[TT__ADADELTA_LR], eps = (REAL)option[TT__ADADELTA_EPS];
    const REAL rho = (REAL)option[TT__ADADELTA_RHO], rest = (REAL)(1 - option[TT__ADADELTA_RHO]);
    const REAL wd = (REAL)option[TT__ADADELTA_WEIGHT_DECAY], sign = option[TT__ADADELTA_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict square = (REAL *)u->state[TT__ADADELTA_SQUARE_AVG];
    REAL *restrict acc = (REAL *)u->state[TT__ADADELTA_ACC_DELTA];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        square[i] = FMA(rest * d, d, square[i] * rho);
        REAL delta = SQRT(acc[i] + eps) / SQRT(square[i] + eps) * d;
        acc[i] = FMA(rest * delta, delta, acc[i] * rho);
        p[i] = FMA(delta, lr, p[i]);
    }
}

RULE void NAME(adadelta)(const tt__update *u) {
    if (u->option[TT__ADADELTA_WEIGHT_DECAY] != 0)
        NAME(adadelta_loop)(u, true);
    else
        NAME(adadelta_loop)(u, false);
}

/* ---- RMSprop */

RULE_LOOP void NAME(rmsprop_loop)(const tt__update *u, bool decay, bool centered, bool momentum) {
    const double *option = u->option;
    const REAL lr = -(REAL)option[TT__RMSPROP_LR], eps = (REAL)option[TT__RMSPROP_EPS];
    const REAL alpha = (REAL)option[TT__RMSPROP_ALPHA], rest = (REAL)(1 - option[TT__RMSPROP_ALPHA]);
    const REAL wd = (REAL)option[TT__RMSPROP_WEIGHT_DECAY], kept = (REAL)option[TT__RMSPROP_MOMENTUM];
    const REAL sign = option[TT__RMSPROP_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict square = (REAL *)u->state[TT__RMSPROP_SQUARE_AVG];
    REAL *restrict mean = (REAL *)u->state[TT__RMSPROP_GRAD_AVG];
    REAL *restrict buf = (REAL *)u->state[TT__RMSPROP_MOMENTUM_BUFFER];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        square[i] = FMA(rest * d, d, square[i] * alpha);
        REAL variance = square[i];
        if (centered) {
            mean[i] = FMA(d, rest, mean[i] * alpha);
            variance = FMA(-mean[i], mean[i], variance);
        }
        REAL root = SQRT(variance) + eps;
        if (momentum) {
            buf[i] = buf[i] * kept + d / root;
            p[i] = FMA(buf[i], lr, p[i]);
        } else {
            p[i] = p[i] + lr * d / root;
        }
    }
}

RULE void NAME(rmsprop)(const tt__update *u) {
    const bool centered = u->state[TT__RMSPROP_GRAD_AVG], momentum = u->state[TT__RMSPROP_MOMENTUM_BUFFER];
#define RMSPROP_WITH_DECAY(decay)                       \
    do {                                                \
        if (centered && momentum)                       \
            NAME(rmsprop_loop)(u, decay, true, true);   \
        else if (centered)                              \
            NAME(rmsprop_loop)(u, decay, true, false);  \
        else if (momentum)                              \
            NAME(rmsprop_loop)(u, decay, false, true);  \
        else                                            \
            NAME(rmsprop_loop)(u, decay, false, false); \
    } while (0)
    if (u->option[TT__RMSPROP_WEIGHT_DECAY] != 0)
        RMSPROP_WITH_DECAY(true);
    else
        RMSPROP_WITH_DECAY(false);
#undef RMSPROP_WITH_DECAY
}

/* ---- LAMB */

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
