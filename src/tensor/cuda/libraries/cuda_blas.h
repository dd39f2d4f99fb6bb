/* Matrix products by cuBLASLt. It stores matrices by columns, so y = a b of ours is y^T = b^T a^T of its: the operands
 * change places, and nothing is copied. f32 is multiplied in f32 (no TF32), f64 in f64, 16-bit floats in f32, and parts
 * of a sum are added in that type, in an order that a plan fixes. */
#ifndef TT_TENSOR_CUDA_CUDA_BLAS_H
#define TT_TENSOR_CUDA_CUDA_BLAS_H

#include "tensor/cuda/device/cuda_state.h"
#include "tensor/cuda/libraries/cuda_blas_plan.h"

/* Enqueue a product. TT_ERR_UNSUPPORTED, without a recorded error: cuBLASLt is not used or doesn't take this one. */
tt_status tt__blas_multiply(tt__cuda_state *state, const tt__blas_product *product);

#endif
