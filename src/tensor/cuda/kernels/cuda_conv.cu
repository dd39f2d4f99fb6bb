/* Convolutions without a library, as products of matrices that are never stored: a block makes a tile of a group's
 * result. It stages tiles of both factors in shared memory, gathered from where they lie, and each thread has a few
 * elements of the result in registers. f32 and 16-bit floats are added up in f32, f64 in f64, in an order that depends
 * on shapes alone. Padding is multiplied as zeros: NaN or infinity in a weight reaches windows in which it meets only
 * padding.
 *
 *                    rows (M)             columns (N)         depth (K), along which is summed
 *   forward          outputs k            pixels n p q of y   taps c r s
 *   backward data    inputs c             pixels n h w of x   taps k r s
 *   backward weight  outputs k            taps c r s          pixels n p q of y */
#include "tensor/cuda/kernels/cuda_images.cuh"

namespace tt {

constexpr int CONV_TILE = 32, CONV_DEPTH = 16;
constexpr int CONV_EACH = CONV_TILE * CONV_TILE / THREADS; /* a thread's elements of a tile, one below the other */
static_assert(THREADS % CONV_TILE == 0, "a thread has one column");

/* A number as three digits. */
struct conv_triple {
    int64_t a, b, c;
};

__device__ inline conv_triple conv_split(int64_t i, int64_t B, int64_t C) {
    int64_t ab = i / C;
    return conv_triple{ab / B, ab % B, i % C};
}

/* What the three products have in common. */
template <class T> struct conv_product {
    typedef wide<T> W;
    tt__cuda_conv c;
    int64_t M, N, K;

    __device__ conv_triple tap_number(int64_t i) const { return conv_split(i, c.size[0], c.size[1]); }
    __device__ conv_triple pixel_number(const tt__cuda_image &x, int64_t i) const {
        return conv_split(i, x.dim[2], x.dim[3]);
    }

    /* What tap (r, s) of window (p, q) sees of this channel of x. */
    __device__ W seen(int64_t n, int64_t channel, conv_triple window, conv_triple tap) const {
        int64_t h = tap_place(c.conv.window, 0, window.b, tap.b, c.x.dim[2]);
        int64_t w = tap_place(c.conv.window, 1, window.c, tap.c, c.x.dim[3]);
        return h < 0 || w < 0 ? 0 : load(pixel<T>(c.x, n, channel, h, w));
    }
};

template <class T> struct conv_forward : conv_product<T> {
    typedef wide<T> W;

    __device__ W left(int64_t group, int64_t row, int64_t k) const {
        return load((const T *)this->c.w + (group * this->c.outputs + row) * this->K + k);
    }
    __device__ conv_triple column(int64_t j) const { return this->pixel_number(this->c.y, j); }
    __device__ W right(int64_t group, int64_t k, conv_triple at) const {
        conv_triple tap = this->tap_number(k);
        return this->seen(at.a, group * this->c.inputs + tap.a, at, tap);
    }
    __device__ void put(int64_t group, int64_t row, int64_t, conv_triple at, int64_t, W sum) const {
        int64_t k = group * this->c.outputs + row;
        const T *bias = (const T *)this->c.bias;
        store(pixel<T>(this->c.y, at.a, k, at.b, at.c), sum + (bias ? load(bias + k) : 0));
    }
};

template <class T> struct conv_backward_data : conv_product<T> {
    typedef wide<T> W;

    __device__ W left(int64_t group, int64_t row, int64_t k) const {
        int64_t taps = this->c.size[0] * this->c.size[1], output = group * this->c.outputs + k / taps;
        return load((const T *)this->c.w + (output * this->c.inputs + row) * taps + k % taps);
    }
    __device__ conv_triple column(int64_t j) const { return this->pixel_number(this->c.x, j); }
    __device__ W right(int64_t group, int64_t k, conv_triple at) const {
        conv_triple tap = this->tap_number(k);
        const tt__cuda_image &g = this->c.y;
        int64_t p = window_with(this->c.conv.window, 0, at.b, tap.b, g.dim[2]);
        int64_t q = window_with(this->c.conv.window, 1, at.c, tap.c, g.dim[3]);
        return p < 0 || q < 0 ? 0 : load(pixel<T>(g, at.a, group * this->c.outputs + tap.a, p, q));
    }
    __device__ void put(int64_t group, int64_t row, int64_t, conv_triple at, int64_t, W sum) const {
        store(pixel<T>(this->c.x, at.a, group * this->c.inputs + row, at.b, at.c), sum);
    }
};

template <class T> struct conv_backward_weight : conv_product<T> {
    typedef wide<T> W;

    __device__ W left(int64_t group, int64_t row, int64_t k) const {
        conv_triple at = this->pixel_number(this->c.y, k);
        return load(pixel<T>(this->c.y, at.a, group * this->c.outputs + row, at.b, at.c));
    }
    __device__ conv_triple column(int64_t j) const { return this->tap_number(j); }
    __device__ W right(int64_t group, int64_t k, conv_triple tap) const {
        conv_triple at = this->pixel_number(this->c.y, k);
        return this->seen(at.a, group * this->c.inputs + tap.a, at, tap);
    }
    __device__ void put(int64_t group, int64_t row, int64_t j, conv_triple, int64_t part, W sum) const {
        int64_t weight = (group * this->c.outputs + row) * this->N + j;
        if (this->c.scratch)
            this->c.scratch[part * this->c.conv.groups * this->M * this->N + weight] = (double)sum;
        else
            store((T *)this->c.w + weight, sum);
    }
};

/* Of tile number `tile`: its group, its part of the depth, and where it begins. */
struct conv_place {
    int64_t group, part, top, left, begin, end;

    template <class Job> __device__ conv_place(const Job &job, int64_t tile) {
        int64_t across = (job.N + CONV_TILE - 1) / CONV_TILE, down = (job.M + CONV_TILE - 1) / CONV_TILE;
        left = tile % across * CONV_TILE;
        top = tile / across % down * CONV_TILE;
        part = tile / across / down % job.c.parts;
        group = tile / across / down / job.c.parts;
        begin = job.K * part / job.c.parts;
        end = job.K * (part + 1) / job.c.parts;
    }
};

template <class T, class Job> __global__ void conv_tiles(Job job, int64_t tiles) {
    typedef wide<T> W;
    __shared__ W a[CONV_TILE][CONV_DEPTH + 1], b[CONV_DEPTH][CONV_TILE + 1];
    const int mine = threadIdx.x % CONV_TILE, first = threadIdx.x / CONV_TILE, rows = THREADS / CONV_TILE;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const conv_place at(job, tile);
        const int64_t j = at.left + mine;
        const conv_triple column = job.column(j < job.N ? j : 0);
        W sum[CONV_EACH];
        for (int e = 0; e < CONV_EACH; e++)
            sum[e] = 0;
        for (int64_t k0 = at.begin; k0 < at.end; k0 += CONV_DEPTH) {
            __syncthreads(); /* the tiles before may still be read */
            for (int e = threadIdx.x; e < CONV_TILE * CONV_DEPTH; e += THREADS) {
                int64_t i = at.top + e / CONV_DEPTH, k = k0 + e % CONV_DEPTH;
                a[e / CONV_DEPTH][e % CONV_DEPTH] = i < job.M && k < at.end ? job.left(at.group, i, k) : 0;
            }
            for (int d = first; d < CONV_DEPTH; d += rows)
                b[d][mine] = k0 + d < at.end && j < job.N ? job.right(at.group, k0 + d, column) : 0;
            __syncthreads();
            for (int d = 0; d < CONV_DEPTH; d++)
                for (int e = 0; e < CONV_EACH; e++)
                    sum[e] += a[first + e * rows][d] * b[d][mine];
        }
        for (int e = 0; e < CONV_EACH; e++) {
            int64_t i = at.top + first + e * rows;
            if (i < job.M && j < job.N)
                job.put(at.group, i, j, column, at.part, sum[e]);
        }
    }
}

template <class T, class Job> cudaError_t conv_launch(cudaStream_t stream, const Job &job) {
    int64_t across = (job.N + CONV_TILE - 1) / CONV_TILE, down = (job.M + CONV_TILE - 1) / CONV_TILE;
    int64_t tiles = across * down * job.c.parts * job.c.conv.groups;
    return tiles ? launch_blocks(conv_tiles<T, Job>, grid_of(tiles), stream, job, tiles) : cudaSuccess;
}

/* ---- sums of parts, and of biases ---- */

template <class T> __global__ void conv_sum_parts(T *dw, const double *scratch, int64_t weights, int64_t parts) {
    for (int64_t i = first_element(); i < weights; i += all_threads()) {
        double sum = 0;
        for (int64_t part = 0; part < parts; part++)
            sum += scratch[part * weights + i];
        store(dw + i, (wide<T>)sum);
    }
}

template <class T> __global__ void conv_add_bias(tt__cuda_image y, const T *bias, int64_t n) {
    for (int64_t i = first_element(); i < n; i += all_threads()) {
        image_place at = place_in(y, i);
        T *p = pixel<T>(y, at.n, at.c, at.h, at.w);
        store(p, load(p) + load(bias + at.c));
    }
}

/* A block for each output. */
template <class T> __global__ void conv_bias(T *db, tt__cuda_image g) {
    const int64_t pixels = g.dim[0] * g.dim[2] * g.dim[3];
    for (int64_t k = blockIdx.x; k < g.dim[1]; k += gridDim.x) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < pixels; i += THREADS) {
            conv_triple at = conv_split(i, g.dim[2], g.dim[3]);
            sum += (double)load(pixel<T>(g, at.a, k, at.b, at.c));
        }
        sum = block_reduce(sum, join_sum());
        if (threadIdx.x == 0)
            store(db + k, (wide<T>)sum);
    }
}

/* ---- */

template <class T, class Job> Job conv_job(const tt__cuda_conv *c, int64_t M, int64_t N, int64_t K) {
    Job job;
    job.c = *c;
    job.M = M;
    job.N = N;
    job.K = K;
    return job;
}

inline int64_t conv_pixels(const tt__cuda_image &x) { return x.dim[0] * x.dim[2] * x.dim[3]; }

template <class T> cudaError_t conv_run(cudaStream_t stream, const tt__cuda_conv *c) {
    int64_t taps = c->size[0] * c->size[1];
    return conv_launch<T>(stream, conv_job<T, conv_forward<T>>(c, c->outputs, conv_pixels(c->y), c->inputs * taps));
}

template <class T> cudaError_t conv_data_run(cudaStream_t stream, const tt__cuda_conv *c) {
    int64_t taps = c->size[0] * c->size[1];
    return conv_launch<T>(stream,
                          conv_job<T, conv_backward_data<T>>(c, c->inputs, conv_pixels(c->x), c->outputs * taps));
}

template <class T> cudaError_t conv_add_bias_run(cudaStream_t stream, const tt__cuda_image *y, const void *bias) {
    int64_t n = image_elements(*y);
    return n ? launch(conv_add_bias<T>, grid_for(n), stream, *y, (const T *)bias, n) : cudaSuccess;
}

template <class T> cudaError_t conv_bias_run(cudaStream_t stream, void *db, const tt__cuda_image *g) {
    return launch_blocks(conv_bias<T>, grid_of(g->dim[1]), stream, (T *)db, *g);
}

template <class T> cudaError_t conv_weight_run(cudaStream_t stream, const tt__cuda_conv *c) {
    int64_t columns = c->inputs * c->size[0] * c->size[1], weights = c->conv.groups * c->outputs * columns;
    cudaError_t error =
        conv_launch<T>(stream, conv_job<T, conv_backward_weight<T>>(c, c->outputs, columns, conv_pixels(c->y)));
    if (!error && c->scratch)
        error = launch(conv_sum_parts<T>, grid_for(weights), stream, (T *)c->w, c->scratch, weights, c->parts);
    return error || !c->bias ? error : conv_bias_run<T>(stream, c->bias, &c->y);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_conv2d(cudaStream_t stream, tt_dtype dtype,
                            const tt__cuda_conv *c){TT__FLOATS(dtype, tt::conv_run, stream, c)}

cudaError_t tt__cuda_conv2d_backward_data(cudaStream_t stream, tt_dtype dtype,
                                          const tt__cuda_conv *c){TT__FLOATS(dtype, tt::conv_data_run, stream, c)}

cudaError_t tt__cuda_conv2d_backward_weight(cudaStream_t stream, tt_dtype dtype, const tt__cuda_conv *c) {
    TT__FLOATS(dtype, tt::conv_weight_run, stream, c)
}

cudaError_t tt__cuda_conv2d_add_bias(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *y, const void *bias) {
    TT__FLOATS(dtype, tt::conv_add_bias_run, stream, y, bias)
}

cudaError_t tt__cuda_conv2d_backward_bias(cudaStream_t stream, tt_dtype dtype, void *db, const tt__cuda_image *g) {
    TT__FLOATS(dtype, tt::conv_bias_run, stream, db, g)
}
}
