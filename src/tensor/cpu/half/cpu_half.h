/* Kernels of f16 and bf16: computed in f32, each result rounded once. */
#ifndef TT_TENSOR_CPU_CPU_HALF_H
#define TT_TENSOR_CPU_CPU_HALF_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_matmul_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);
tt_status tt__cpu_matmul_bias_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias);
tt_status tt__cpu_conv2d_half(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                              const tt__conv *conv);
tt_status tt__cpu_conv2d_backward_data_half(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                            const tt__conv *conv);
tt_status tt__cpu_conv2d_backward_weight_half(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                              const tt__conv *conv);
tt_status tt__cpu_softmax_half(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_softmax_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_log_softmax_half(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_log_softmax_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_dropout_half(tt_tensor *y, const tt_tensor *x, const tt__dropout *call);
tt_status tt__cpu_max_pool2d_half(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__cpu_max_pool2d_backward_half(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                           const tt__pooling *pool);
tt_status tt__cpu_sum_half(tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__cpu_attention_half(tt_tensor *y, tt_tensor *stats, const tt__attention *in);
tt_status tt__cpu_attention_backward_half(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                          const tt_tensor *g, const tt__attention *in);
tt_status tt__cpu_add_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_sub_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_mul_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_scale_half(tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__cpu_relu_half(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_relu_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_unary_half(tt_tensor *y, const tt_tensor *x, const tt__unary *call);
tt_status tt__cpu_unary_backward_half(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call);

#endif
