/* Gradients: their measure, joined in an order that depends on their size alone, and what is not finite in them. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_optim.h"

namespace tt {

__device__ inline double measure_term(double x, double p) {
    const double v = fabs(x);
    return p == (double)INFINITY || p == 1 ? v : p == 2 ? v * v : pow(v, p);
}

struct join_measures {
    bool largest;
    __device__ double operator()(double a, double b) const {
        return !largest ? a + b : b > a || b != b ? b : a; /* no number is above NaN */
    }
};

template <class T> __global__ void grad_measure_parts(tt__cuda_measure m) {
    const join_measures join = {m.p == (double)INFINITY};
    double mine = 0;
    for (int64_t i = first_element(); i < m.n; i += all_threads())
        mine = join(mine, measure_term((double)load((const T *)m.x + i), m.p));
    mine = block_reduce(mine, join);
    if (threadIdx.x == 0)
        m.scratch[blockIdx.x] = mine;
}

__global__ void join_measured_parts(tt__cuda_measure m) {
    const join_measures join = {m.p == (double)INFINITY};
    double all = 0;
    for (int64_t i = threadIdx.x; i < m.parts; i += THREADS)
        all = join(all, m.scratch[i]);
    all = block_reduce(all, join);
    if (threadIdx.x == 0)
        *m.total = join(*m.total, all);
}

template <class T> cudaError_t grad_measure_run(cudaStream_t stream, const tt__cuda_measure *m) {
    cudaError_t error = launch_blocks(grad_measure_parts<T>, m->parts, stream, *m);
    return error ? error : launch_blocks(join_measured_parts, 1, stream, *m);
}

/* All threads that find something write the same number. */
template <class T> __global__ void grad_unscale(T *x, int64_t n, T factor, double *found) {
    bool infinite = false;
    for (int64_t i = first_element(); i < n; i += all_threads()) {
        infinite = infinite || !(fabs(x[i]) < (T)INFINITY);
        x[i] *= factor;
    }
    if (infinite)
        *found = 1;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_grad_measure(cudaStream_t stream, tt_dtype dtype, const tt__cuda_measure *m) {
    return dtype == TT_F32 ? tt::grad_measure_run<float>(stream, m) : tt::grad_measure_run<double>(stream, m);
}

cudaError_t tt__cuda_grad_unscale(cudaStream_t stream, tt_dtype dtype, void *x, int64_t n, double factor,
                                  double *found) {
    if (dtype == TT_F32)
        return tt::launch(tt::grad_unscale<float>, tt::grid_for(n), stream, (float *)x, n, (float)factor, found);
    return tt::launch(tt::grad_unscale<double>, tt::grid_for(n), stream, (double *)x, n, factor, found);
}
}
