/* What several formulas of pointwise_formulas.h have in common; for the files that compile them. */
#ifndef TT_TENSOR_POINTWISE_PARTS_H
#define TT_TENSOR_POINTWISE_PARTS_H

/* 0 for NaN, as in PyTorch. */
#define SIGN(t) SELECT((t) > 0, K(1.0), SELECT((t) < 0, K(-1.0), K(0.0)))
#define SIGMOID(t) (K(1.0) / (K(1.0) + EXP(-(t))))

/* gelu in both variants, and slopes, unless the file has its own. x (1 + tanh u) / 2 with u = GELU_U(x): 1 + tanh u =
 * 2 sigmoid(2u) */
#ifndef GELU
#define SILU_SLOPE(t) (SIGMOID(t) * (K(1.0) + (t)*SIGMOID(-(t))))
#define GELU(t) ((t)*NORMAL_CDF(t))
#define GELU_SLOPE(t) (NORMAL_CDF(t) + (t)*NORMAL_PDF(t))
#define GELU_TANH(t) ((t)*SIGMOID(K(2.0) * GELU_U(t)))
#define GELU_TANH_SLOPE(t) \
    (SIGMOID(K(2.0) * GELU_U(t)) * (K(1.0) + K(2.0) * (t)*SIGMOID(K(-2.0) * GELU_U(t)) * GELU_DU(t)))
#define NORMAL_CDF(t) (K(0.5) * (K(1.0) + ERF((t)*K(0.70710678118654752))))
#define NORMAL_PDF(t) (K(0.39894228040143268) * EXP(K(-0.5) * (t) * (t)))
/* sqrt(2 / pi) (t + 0.044715 t^3), and its derivative */
#define GELU_U(t) (K(0.79788456080286536) * ((t) + K(0.044715) * (t) * (t) * (t)))
#define GELU_DU(t) (K(0.79788456080286536) * (K(1.0) + K(0.134145) * (t) * (t)))
#endif

#endif
