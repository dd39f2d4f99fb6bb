/* Matrix products by oneDNN's primitive, which takes more element types than its sgemm. */
#ifndef TT_TENSOR_CPU_ONEDNN_PRODUCT_H
#define TT_TENSOR_CPU_ONEDNN_PRODUCT_H

#include "tensor/kernels/kernels.h"

/* Does oneDNN multiply and convolve bf16 fast here: has the processor AVX-512 with BF16 instructions, and does
 * TT_CPU_LEVEL allow them? */
bool tt__onednn_takes_bf16(void);

/* The kernel `matmul` (kernels.h) for f32 and bf16, and for bf16 with y in f32. TT_ERR_UNSUPPORTED, and no error is
 * recorded: oneDNN has nothing for bf16 here. */
tt_status tt__onednn_product(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

/* The same for the kernel `matmul_bias`. */
tt_status tt__onednn_product_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias);

#endif
