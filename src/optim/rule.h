/* Update rules on the host: those of tensor/rules/rules.h, and some that only the host has. */
#ifndef TT_OPTIM_RULE_H
#define TT_OPTIM_RULE_H

#include "base/cpu.h"
#include "tensor/rules/rules.h"

typedef void (*tt__update_fn)(const tt__update *u);

/* A rule for each element type that has one. */
typedef struct tt__rule_kernels {
    tt__update_fn f32, f64;
} tt__rule_kernels;

TT__LEVEL_DECLARE(tt__rule_kernels, tt__sgd_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adam_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adamw_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__rmsprop_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adagrad_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adadelta_kernels);

/* SparseAdam, over the elements of one row that has a gradient; nothing is an fma:
 *   a = (g - m) * (1 - beta1), m = m + a      "exp_avg"
 *   b = (g * g - v) * (1 - beta2), v = v + b  "exp_avg_sq"
 *   p = p + -(lr * sqrt(1 - beta2^t) / (1 - beta1^t)) * (m / (sqrt(v) + eps)) */
enum {
    TT__SPARSE_ADAM_LR,
    TT__SPARSE_ADAM_BETA1,
    TT__SPARSE_ADAM_BETA2,
    TT__SPARSE_ADAM_EPS,
    TT__SPARSE_ADAM_MAXIMIZE,
    TT__SPARSE_ADAM_OPTIONS
};
enum { TT__SPARSE_ADAM_EXP_AVG, TT__SPARSE_ADAM_EXP_AVG_SQ, TT__SPARSE_ADAM_SLOTS };
TT__LEVEL_DECLARE(tt__rule_kernels, tt__sparse_adam_kernels);

/* LAMB, in two passes. N is the norm of all gradients, t the number of the step; nothing is an fma:
 *   g = g / (N / max_grad_norm)               if N is larger, and max_grad_norm is not 0
 *   g = g + p * weight_decay                  without adam_w_mode
 *   m = m * beta1 + g * (1 - beta1)           "exp_avg"; without grad_averaging m * beta1 + g
 *   v = v * beta2 + g * g * (1 - beta2)       "exp_avg_sq"
 *   d = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps), the divisors of m and v with bias_correction only
 *   d = d + p * weight_decay                  with adam_w_mode
 * measures |p|^2 and |d|^2 of a parameter, and the second pass is
 *   p = p - lr * |p| / |d| * d                or p - lr * d if one is 0, or there is neither decay nor use_nvlamb */
enum {
    TT__LAMB_LR,
    TT__LAMB_BETA1,
    TT__LAMB_BETA2,
    TT__LAMB_EPS,
    TT__LAMB_WEIGHT_DECAY,
    TT__LAMB_MAX_GRAD_NORM,
    TT__LAMB_BIAS_CORRECTION,
    TT__LAMB_GRAD_AVERAGING,
    TT__LAMB_ADAM_W_MODE,
    TT__LAMB_USE_NVLAMB,
    TT__LAMB_MAXIMIZE,
    TT__LAMB_OPTIONS
};
enum { TT__LAMB_EXP_AVG, TT__LAMB_EXP_AVG_SQ, TT__LAMB_SLOTS };
TT__LEVEL_DECLARE(tt__rule_kernels, tt__lamb_measure_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__lamb_kernels);

#endif
