/* The kernels that oneDNN runs: kernels.h says what each does. */
#ifndef TT_TENSOR_CPU_ONEDNN_ONEDNN_H
#define TT_TENSOR_CPU_ONEDNN_ONEDNN_H

#include "tensor/kernels/kernels.h"

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

/* Of f32 and bf16. TT_ERR_UNSUPPORTED, and no error is recorded: oneDNN has nothing for bf16 here. */
tt_status tt__onednn_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                            const tt__conv *conv);
tt_status tt__onednn_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv);
tt_status tt__onednn_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                            const tt__conv *conv);

/* Does oneDNN multiply and convolve bf16 fast here: has the processor AVX-512 with BF16 instructions, and does
 * TT_CPU_LEVEL allow them? */
bool tt__onednn_takes_bf16(void);

/* The kernel `matmul` (kernels.h) for f32 and bf16, and for bf16 with y in f32. TT_ERR_UNSUPPORTED, and no error is
 * recorded: oneDNN has nothing for bf16 here. */
tt_status tt__onednn_product(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

/* The same for the kernel `matmul_bias`. */
tt_status tt__onednn_product_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias);

#endif
