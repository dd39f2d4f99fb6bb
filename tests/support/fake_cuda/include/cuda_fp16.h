/* CUDA's 16-bit float, by the host's own conversions. */
#ifndef FAKE_CUDA_FP16_H
#define FAKE_CUDA_FP16_H

#include "base/dtype.h"

struct __half {
    uint16_t bits;
};
static inline float __half2float(__half h) { return tt__float_of_f16(h.bits); }
static inline __half __float2half_rn(float x) { return __half{tt__f16_of_float(x)}; }

#endif
