/* What several formulas of pointwise_formulas.h have in common; for the files that compile them. */
#ifndef TT_TENSOR_POINTWISE_PARTS_H
#define TT_TENSOR_POINTWISE_PARTS_H

#define SIGN(t) SELECT((t) > 0, K(1.0), SELECT((t) < 0, K(-1.0), (t)))
#define SIGMOID(t) (K(1.0) / (K(1.0) + EXP(-(t))))
#define NORMAL_CDF(t) (K(0.5) * (K(1.0) + ERF((t)*K(0.70710678118654752))))
#define NORMAL_PDF(t) (K(0.39894228040143268) * EXP(K(-0.5) * (t) * (t)))
/* sqrt(2 / pi) (t + 0.044715 t^3), and its derivative */
#define GELU_U(t) (K(0.79788456080286536) * ((t) + K(0.044715) * (t) * (t) * (t)))
#define GELU_DU(t) (K(0.79788456080286536) * (K(1.0) + K(0.134145) * (t) * (t)))

#endif
