/* u8 pixels to f32, one table per instruction-set level. */
#ifndef TT_DATA_CONVERT_KERNELS_H
#define TT_DATA_CONVERT_KERNELS_H

#include "base/machine/cpu.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tt__convert_kernels {
    /* out[i] := in[i] */
    void (*plain)(float *out, const uint8_t *in, size_t n);
    /* out[i] := (in[i] / 255 - mean) / std: ToTensor and Normalize of torchvision, each operation rounded to f32 */
    void (*normalize)(float *out, const uint8_t *in, size_t n, float mean, float std);
} tt__convert_kernels;

TT__LEVEL_DECLARE(tt__convert_kernels, tt__convert_kernels);

#endif
