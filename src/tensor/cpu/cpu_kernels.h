/* Kernels of the cpu, of f32 where nothing else is said: kernels.h says what each does. Layouts that they have no loops
 * for are left to the plain loops. */
#ifndef TT_TENSOR_CPU_CPU_KERNELS_H
#define TT_TENSOR_CPU_CPU_KERNELS_H

#include "tensor/kernels/kernels.h"

/* ---- cpu_elementwise.c; copies and zeros of every element type */

tt_status tt__cpu_copy(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_fill(tt_tensor *y, double value);
tt_status tt__cpu_add_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_sub_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_mul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_scale_f32(tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__cpu_relu_f32(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_relu_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_unary_f32(tt_tensor *y, const tt_tensor *x, const tt__unary *call);
tt_status tt__cpu_unary_backward_f32(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call);
tt_status tt__cpu_binary_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call);
tt_status tt__cpu_binary_backward_f32(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                      const tt__binary *call, int input);
tt_status tt__cpu_dropout_f32(tt_tensor *y, const tt_tensor *x, const tt__dropout *call);

/* ---- cpu_index.c: rows of contiguous tensors; index_select of every element type */

tt_status tt__cpu_index_select(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__cpu_index_add_f32(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);

/* ---- cpu_norm.c */

tt_status tt__cpu_batch_norm_stats_f32(const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd);
tt_status tt__cpu_batch_norm_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,
                                 const tt_tensor *weight, const tt_tensor *bias);
tt_status tt__cpu_batch_norm_backward_f32(const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw, tt_tensor *db);
tt_status tt__cpu_batch_norm_give_f32(const tt__normed *n, const tt_tensor *sums, int64_t count, tt_tensor *dx);
tt_status tt__cpu_row_norm_f32(tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                               const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm);
tt_status tt__cpu_row_norm_backward_f32(const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw,
                                        tt_tensor *db);

/* ---- cpu_pooling.c */

tt_status tt__cpu_max_pool2d_f32(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__cpu_max_pool2d_backward_f32(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                          const tt__pooling *pool);

/* ---- cpu_reduce.c */

/* Is x contiguous, and does y, in x's shape, repeat along the first dimensions and have the last ones in row-major
 * order? Then *cols is the size of the last ones. */
bool tt__sums_leading(const tt_tensor *y, const tt_tensor *x, int64_t *cols);

tt_status tt__cpu_sum_f32(tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__cpu_mse_loss_f32(tt_tensor *loss, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_mse_loss_backward_f32(tt_tensor *da, const tt_tensor *a, const tt_tensor *b, const tt_tensor *g);

/* ---- cpu_rnn.c */

tt_status tt__cpu_rnn_cell_f32(tt_tensor *y, const tt__cell_step *step);
tt_status tt__cpu_rnn_cell_backward_f32(tt_tensor *dx, const tt__cell_grad *grad);

/* ---- cpu_softmax.c */

tt_status tt__cpu_softmax_f32(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_softmax_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_log_softmax_f32(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_log_softmax_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_cross_entropy_f32(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t);
tt_status tt__cpu_cross_entropy_backward_f32(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                             const tt_tensor *stats, const tt_tensor *g);

/* ---- cpu_attention.c: blocks of rows of q, and no more than BLOCK x S scores in memory */

/* Of f32, and of bf16 where tt__onednn_takes_bf16(): then factors are bf16, sums and softmax f32. TT_ERR_UNSUPPORTED,
 * without a recorded error: oneDNN has no such product of bf16. */
tt_status tt__cpu_attention(tt_tensor *y, tt_tensor *stats, const tt__attention *in);
tt_status tt__cpu_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                     const tt_tensor *g, const tt__attention *in);

/* ---- half/cpu_half.c: f16 and bf16, computed in f32, each result rounded once ---- */

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
