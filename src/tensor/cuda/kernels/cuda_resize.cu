/* Images in another size: a thread for each element that is written. An axis of y with `out` places is mapped onto one
 * of x with `in`: place i lies between x's entries `low` and `high`, `weight` of the way. Backward, an element of dx
 * gathers from the places that lie beside it: `low` never falls, so that they are found by bisection. */
#include "tensor/cuda/kernels/cuda_images.cuh"
#include "tensor/cuda/cuda_kernels_images.h"

namespace tt {

template <class W> struct between {
    int64_t low, high;
    W weight;
};

template <class W> __device__ between<W> between_of(int64_t i, int64_t in, int64_t out, const tt__resize &how) {
    if (in == out)
        return between<W>{i, i, 0};
    W step = how.align_corners ? (out > 1 ? (W)(in - 1) / (W)(out - 1) : 0) : (W)in / (W)out;
    if (how.nearest) {
        int64_t low = (int64_t)((W)i * step);
        low = low < in ? low : in - 1;
        return between<W>{low, low, 0};
    }
    W at = how.align_corners ? (W)i * step : ((W)i + (W)0.5) * step - (W)0.5;
    at = at > 0 ? at : 0;
    int64_t low = (int64_t)at < in ? (int64_t)at : in - 1;
    return between<W>{low, low + 1 < in ? low + 1 : low, at - (W)low};
}

template <class T>
__global__ void resize_forward(tt__cuda_image y, tt__cuda_image x, tt__resize how, int64_t elements) {
    typedef wide<T> W;
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place at = place_in(y, i);
        const between<W> row = between_of<W>(at.h, x.dim[2], y.dim[2], how);
        const between<W> column = between_of<W>(at.w, x.dim[3], y.dim[3], how);
        const T *from = pixel<T>(x, at.n, at.c, 0, 0);
        const T *low = from + row.low * x.stride[2], *high = from + row.high * x.stride[2];
        const int64_t a = column.low * x.stride[3], b = column.high * x.stride[3];
        T *to = pixel<T>(y, at.n, at.c, at.h, at.w);
        const W left = 1 - column.weight, top = 1 - row.weight;
        if (how.nearest)
            *to = low[a];
        else
            store(to, top * (left * load(low + a) + column.weight * load(low + b)) +
                          row.weight * (left * load(high + a) + column.weight * load(high + b)));
    }
}

/* ---- backward ---- */

/* The first of `out` places whose `low` is at least `entry`; `out`: none. */
template <class W> __device__ int64_t first_beside(int64_t entry, int64_t in, int64_t out, const tt__resize &how) {
    int64_t from = 0, to = out;
    while (from < to) {
        int64_t middle = from + (to - from) / 2;
        if (between_of<W>(middle, in, out, how).low < entry)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* How much of a place's gradient goes to `entry`. False: it doesn't lie beside it. */
template <class W> __device__ bool share_of(const between<W> &at, int64_t entry, W *share) {
    *share = (at.low == entry ? 1 - at.weight : 0) + (at.high == entry ? at.weight : 0);
    return at.low == entry || at.high == entry;
}

template <class T>
__device__ wide<T> gathered(const tt__cuda_image &dx, const tt__cuda_image &g, const image_place &at,
                            const tt__resize &how) {
    typedef wide<T> W;
    const int64_t H = dx.dim[2], P = g.dim[2], V = dx.dim[3], Q = g.dim[3];
    const int64_t top = first_beside<W>(at.h - 1, H, P, how), left = first_beside<W>(at.w - 1, V, Q, how);
    W sum = 0, down, across;
    for (int64_t p = top; p < P; p++) {
        const between<W> row = between_of<W>(p, H, P, how);
        if (row.low > at.h)
            break;
        if (!share_of(row, at.h, &down))
            continue;
        for (int64_t q = left; q < Q; q++) {
            const between<W> column = between_of<W>(q, V, Q, how);
            if (column.low > at.w)
                break;
            if (share_of(column, at.w, &across))
                sum += down * load(pixel<T>(g, at.n, at.c, p, q)) * across;
        }
    }
    return sum;
}

template <class T>
__global__ void resize_backward(tt__cuda_image dx, tt__cuda_image g, tt__resize how, int64_t elements) {
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place at = place_in(dx, i);
        T *to = pixel<T>(dx, at.n, at.c, at.h, at.w);
        store(to, load(to) + gathered<T>(dx, g, at, how));
    }
}

/* ---- */

template <class T>
cudaError_t resize_run(cudaStream_t stream, const tt__cuda_image *y, const tt__cuda_image *x, const tt__resize *how) {
    int64_t elements = image_elements(*y);
    return elements ? launch(resize_forward<T>, grid_for(elements), stream, *y, *x, *how, elements) : cudaSuccess;
}

template <class T>
cudaError_t resize_backward_run(cudaStream_t stream, const tt__cuda_image *dx, const tt__cuda_image *g,
                                const tt__resize *how) {
    int64_t elements = image_elements(*dx);
    return elements ? launch(resize_backward<T>, grid_for(elements), stream, *dx, *g, *how, elements) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_resize(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *y, const tt__cuda_image *x,
                            const tt__resize *how){TT__FLOATS(dtype, tt::resize_run, stream, y, x, how)}

cudaError_t tt__cuda_resize_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *dx,
                                     const tt__cuda_image *g, const tt__resize *how) {
    TT__FLOATS(dtype, tt::resize_backward_run, stream, dx, g, how)
}
}
