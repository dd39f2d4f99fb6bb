/* The arithmetic of SGD over contiguous arrays. In PyTorch's terms, for each element:
 *   d = g                      or, with weight decay, d = g + p * weight_decay
 *   buf = d                    in the first step, later buf = buf * momentum + d * (1 - dampening)
 *   d = buf                    or, with nesterov, d = d + buf * momentum
 *   p = p - d * lr
 * Each "a + b * c" is one fma; buf * momentum is rounded before the addition. */
#ifndef TT_OPTIM_SGD_H
#define TT_OPTIM_SGD_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tt__sgd_rule {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
} tt__sgd_rule;

/* buf: NULL without momentum; `fresh`: it has no values yet. */
typedef struct tt__sgd_kernels {
    void (*step)(int64_t n, float *p, const float *g, float *buf, bool fresh, const tt__sgd_rule *rule);
} tt__sgd_kernels;

TT__LEVEL_DECLARE(tt__sgd_kernels, tt__sgd_kernels);

static inline const tt__sgd_kernels *tt__sgd(void) { return TT__LEVEL_CHOOSE(tt__sgd_kernels); }

#endif
