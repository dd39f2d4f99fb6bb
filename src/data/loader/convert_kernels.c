/* u8 pixels to f32. Divisions stay divisions: multiplying by a reciprocal gives other bits than torchvision's. */
#include "data/loader/convert_kernels.h"

static void to_float(float *restrict out, const uint8_t *restrict in, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = (float)in[i];
}

static void to_normalized(float *restrict out, const uint8_t *restrict in, size_t n, float mean, float std) {
    for (size_t i = 0; i < n; i++)
        out[i] = ((float)in[i] / 255.0f - mean) / std;
}

const tt__convert_kernels TT__LEVEL_NAME(tt__convert_kernels) = {to_float, to_normalized};
