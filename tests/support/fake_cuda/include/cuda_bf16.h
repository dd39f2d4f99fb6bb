/* CUDA's bf16, by the host's own conversions. */
#ifndef FAKE_CUDA_BF16_H
#define FAKE_CUDA_BF16_H

#include "base/dtype.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
static inline float __bfloat162float(__nv_bfloat16 h) { return tt__float_of_bf16(h.bits); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16{tt__bf16_of_float(x)}; }

#endif
