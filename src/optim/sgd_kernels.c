#include "optim/sgd.h"

#include <math.h>

/* One loop for each combination of these, as they are constants where this is inlined. */
__attribute__((always_inline)) static inline void loop(int64_t n, float *restrict p, const float *restrict g,
                                                       float *restrict buf, const tt__sgd_rule *rule, bool decay,
                                                       bool momentum, bool fresh, bool nesterov) {
    const float lr = -(float)rule->lr, m = (float)rule->momentum, wd = (float)rule->weight_decay;
    const float undamped = (float)(1 - rule->dampening);
    for (int64_t i = 0; i < n; i++) {
        float d = decay ? fmaf(p[i], wd, g[i]) : g[i];
        if (momentum) {
            float b = fresh ? d : fmaf(d, undamped, buf[i] * m);
            buf[i] = b;
            d = nesterov ? fmaf(b, m, d) : b;
        }
        p[i] = fmaf(d, lr, p[i]);
    }
}

static void step(int64_t n, float *p, const float *g, float *buf, bool fresh, const tt__sgd_rule *rule) {
#define LOOP(...) loop(n, p, g, buf, rule, __VA_ARGS__)
#define WITH_DECAY(decay)                     \
    do {                                      \
        if (!buf)                             \
            LOOP(decay, false, false, false); \
        else if (fresh && rule->nesterov)     \
            LOOP(decay, true, true, true);    \
        else if (fresh)                       \
            LOOP(decay, true, true, false);   \
        else if (rule->nesterov)              \
            LOOP(decay, true, false, true);   \
        else                                  \
            LOOP(decay, true, false, false);  \
    } while (0)
    if (rule->weight_decay != 0)
        WITH_DECAY(true);
    else
        WITH_DECAY(false);
#undef WITH_DECAY
#undef LOOP
}

const tt__sgd_kernels TT__LEVEL_NAME(tt__sgd_kernels) = {.step = step};
