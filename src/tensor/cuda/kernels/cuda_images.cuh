/* What kernels on images share: where elements lie, and which windows hold them. */
#ifndef TT_TENSOR_CUDA_CUDA_IMAGES_CUH
#define TT_TENSOR_CUDA_CUDA_IMAGES_CUH

#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_images.h"

namespace tt {

inline int64_t image_elements(const tt__cuda_image &x) { return x.dim[0] * x.dim[1] * x.dim[2] * x.dim[3]; }

struct image_place {
    int64_t n, c, h, w;
};

/* Place of element i. Those of neighbours lie beside each other in memory, contiguous or channels last. */
__device__ inline image_place place_in(const tt__cuda_image &x, int64_t i) {
    image_place at;
    bool channels_last = x.stride[1] == 1;
    if (channels_last) {
        at.c = i % x.dim[1];
        i /= x.dim[1];
    }
    at.w = i % x.dim[3];
    i /= x.dim[3];
    at.h = i % x.dim[2];
    i /= x.dim[2];
    if (!channels_last) {
        at.c = i % x.dim[1];
        i /= x.dim[1];
    }
    at.n = i;
    return at;
}

__device__ inline int64_t image_offset(const tt__cuda_image &x, int64_t n, int64_t c, int64_t h, int64_t w) {
    return n * x.stride[0] + c * x.stride[1] + h * x.stride[2] + w * x.stride[3];
}

template <class T> __device__ T *pixel(const tt__cuda_image &x, int64_t n, int64_t c, int64_t h, int64_t w) {
    return (T *)x.p + image_offset(x, n, c, h, w);
}

/* Where tap `tap` of window number `at` lies along dimension d (0: H, 1: W); -1: in the padding. */
__device__ inline int64_t tap_place(const tt__window &win, int d, int64_t at, int64_t tap, int64_t size) {
    int64_t place = at * win.stride[d] - win.padding[d] + tap * win.dilation[d];
    return place >= 0 && place < size ? place : -1;
}

/* Which of `count` windows has its tap `tap` at this place; -1: none. */
__device__ inline int64_t window_with(const tt__window &win, int d, int64_t place, int64_t tap, int64_t count) {
    int64_t from = place + win.padding[d] - tap * win.dilation[d], at = from / win.stride[d];
    return from >= 0 && at * win.stride[d] == from && at < count ? at : -1;
}

} /* namespace tt */

#endif
