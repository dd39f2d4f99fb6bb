/* Update rules: the arithmetic of optimizers over contiguous memory. Their loops are in rule_loops.h, which the
 * host (optim/rules/rule_kernels.c) and devices compile. */
#ifndef TT_TENSOR_RULES_RULES_H
#define TT_TENSOR_RULES_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* The most options and slots a rule may have. */
enum { TT__OPTIM_OPTIONS = 16, TT__OPTIM_SLOTS = 8 };

/* The rules that a device may have a kernel for. */
typedef enum tt__optim_rule {
    TT__RULE_NONE, /* one of the host's alone */
    TT__RULE_SGD,
    TT__RULE_ADAM,
    TT__RULE_ADAMW,
    TT__RULE_RMSPROP,
    TT__RULE_ADAGRAD,
    TT__RULE_ADADELTA,
    TT__RULE_LAMB,
    TT__RULE_SPARSE_ADAM
} tt__optim_rule;

/* How many sums a rule may measure. */
enum { TT__RULE_SUMS = 2 };

/* The numbers that change from step to step, for captured steps on the device. */
typedef struct tt__update_count {
    double power[2];
    int64_t step;
} tt__update_count;

/* One run of contiguous elements: parameters, gradients, and as many of each state slot. */
typedef struct tt__update {
    int64_t n;
    void *p;
    const void *g;
    void *const *state;   /* by slot; NULL: the options need none */
    const bool *fresh;    /* by slot: its values are zero and were never updated */
    const double *option; /* of the group, in the order of the rule's enum */
    double grad_norm;     /* of all gradients, where the rule measures them */
    double *sums;         /* TT__RULE_SUMS, which a measuring pass adds to */
    double ratio;         /* made of the sums */
    int64_t step;         /* 1 in the first step; 0 where steps are not counted */
    double power[2];      /* of Adam, SparseAdam, LAMB: beta1 and beta2, to the power of `step` */

    /* Of a captured step, which is repeated with other numbers: where these lie on the device. Else NULL. */
    const double *option_at;
    const tt__update_count *count_at;
} tt__update;

/* In PyTorch's terms, for each element; "a + b * c" is one fma, and buf * momentum is rounded before the addition.
 * In all rules g is the gradient, or, with maximize, -gradient:
 *   d = g                      or, with weight decay, d = g + p * weight_decay
 *   buf = d                    in the first step, later buf = buf * momentum + d * (1 - dampening)
 *   d = buf                    or, with nesterov, d = d + buf * momentum
 *   p = p - d * lr */
enum {
    TT__SGD_LR,
    TT__SGD_MOMENTUM,
    TT__SGD_DAMPENING,
    TT__SGD_WEIGHT_DECAY,
    TT__SGD_NESTEROV,
    TT__SGD_MAXIMIZE,
    TT__SGD_OPTIONS
};

/* In the same terms, with t the number of the step:
 *   AdamW: p = p * (1 - lr * weight_decay)
 *   Adam:  g = g + p * weight_decay
 *   m = m * beta1 + g * (1 - beta1)           "exp_avg"
 *   v = v * beta2 + (1 - beta2) * g * g       "exp_avg_sq"; the second product is one fma with the sum
 *   w = v                                     or, with amsgrad, w = max(w, v), "max_exp_avg_sq"
 *   p = p + (-lr / (1 - beta1^t) * m) / (sqrt(w) / sqrt(1 - beta2^t) + eps) */
enum {
    TT__ADAM_LR,
    TT__ADAM_BETA1,
    TT__ADAM_BETA2,
    TT__ADAM_EPS,
    TT__ADAM_WEIGHT_DECAY,
    TT__ADAM_AMSGRAD,
    TT__ADAM_MAXIMIZE,
    TT__ADAM_OPTIONS
};
enum { TT__ADAM_EXP_AVG, TT__ADAM_EXP_AVG_SQ, TT__ADAM_MAX_EXP_AVG_SQ, TT__ADAM_SLOTS };

/* In the same terms, with momentum and centered or without:
 *   g = g + p * weight_decay
 *   v = v * alpha + (1 - alpha) * g * g       "square_avg"; the second product is one fma with the sum
 *   m = m * alpha + g * (1 - alpha)           "grad_avg", centered
 *   r = sqrt(v) + eps                         or, centered, r = sqrt(v - m * m) + eps
 *   p = p + -lr * g / r                       or, with momentum,
 *   b = b * momentum + g / r, p = p - b * lr  "momentum_buffer" */
enum {
    TT__RMSPROP_LR,
    TT__RMSPROP_ALPHA,
    TT__RMSPROP_EPS,
    TT__RMSPROP_WEIGHT_DECAY,
    TT__RMSPROP_MOMENTUM,
    TT__RMSPROP_CENTERED,
    TT__RMSPROP_MAXIMIZE,
    TT__RMSPROP_OPTIONS
};
enum { TT__RMSPROP_SQUARE_AVG, TT__RMSPROP_MOMENTUM_BUFFER, TT__RMSPROP_GRAD_AVG, TT__RMSPROP_SLOTS };

/* In the same terms, with t the number of the step:
 *   g = g + p * weight_decay
 *   s = s + g * g                             "sum", which begins as initial_accumulator_value
 *   p = p + -lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps) */
enum {
    TT__ADAGRAD_LR,
    TT__ADAGRAD_LR_DECAY,
    TT__ADAGRAD_EPS,
    TT__ADAGRAD_WEIGHT_DECAY,
    TT__ADAGRAD_INITIAL_ACCUMULATOR_VALUE,
    TT__ADAGRAD_MAXIMIZE,
    TT__ADAGRAD_OPTIONS
};

/* In the same terms:
 *   g = g + p * weight_decay
 *   v = v * rho + (1 - rho) * g * g           "square_avg"; the second product is one fma with the sum, below too
 *   d = sqrt(a + eps) / sqrt(v + eps) * g
 *   a = a * rho + (1 - rho) * d * d           "acc_delta"
 *   p = p - d * lr */
enum {
    TT__ADADELTA_LR,
    TT__ADADELTA_RHO,
    TT__ADADELTA_EPS,
    TT__ADADELTA_WEIGHT_DECAY,
    TT__ADADELTA_MAXIMIZE,
    TT__ADADELTA_OPTIONS
};
enum { TT__ADADELTA_SQUARE_AVG, TT__ADADELTA_ACC_DELTA, TT__ADADELTA_SLOTS };

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

/* LAMB, in two passes. N is the norm of all gradients, t the number of the step; nothing is an fma:
 *   g = g / (N / max_grad_norm)               if N is larger, and max_grad_norm is not 0
 *   g = g + p * weight_decay                  without adam_w_mode
 *   m = m * beta1 + g * (1 - beta1)           "exp_avg"; without grad_averaging m * beta1 + g
 *   v = v * beta2 + g * g * (1 - beta2)       "exp_avg_sq"
 *   d = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps), the divisors of m and v with bias_correction only
 *   d = d + p * weight_decay                  with adam_w_mode
 * measures |p|^2 and |d|^2 of a parameter, and the second pass is
 *   p = p - lr * |p| / |d| * d                or p - lr * d if one is 0, or there is neither decay nor use_nvlamb */
#define TT__LAMB_IS_ADAPTED(option) ((option)[TT__LAMB_WEIGHT_DECAY] != 0 || (option)[TT__LAMB_USE_NVLAMB] != 0)
#define TT__LAMB_RATIO(option, of_p, of_d)                                                                         \
    (TT__LAMB_IS_ADAPTED(option) && (of_p) != 0 && (of_d) != 0 ? (option)[TT__LAMB_LR] * (sqrt(of_p) / sqrt(of_d)) \
                                                               : (option)[TT__LAMB_LR])
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

#endif
