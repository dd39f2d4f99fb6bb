/* A step of SGD, as PyTorch's. */
#include "tensor/cuda/cuda_code.cuh"

namespace tt {

template <class T> __global__ void sgd(tt__cuda_sgd s) {
    typedef wide<T> W;
    T *p = (T *)s.p, *buf = (T *)s.buf;
    const T *g = (const T *)s.g;
    for (int64_t i = first_element(); i < s.n; i += all_threads()) {
        W value = load(p + i), d = load(g + i) + (W)s.weight_decay * value;
        if (buf) {
            W m = s.fresh ? d : (W)s.momentum * load(buf + i) + (W)(1 - s.dampening) * d;
            store(buf + i, m);
            d = s.nesterov ? d + (W)s.momentum * m : m;
        }
        store(p + i, value - (W)s.lr * d);
    }
}

template <class T> cudaError_t sgd_run(cudaStream_t stream, const tt__cuda_sgd *s) {
    return s->n ? launch(sgd<T>, grid_for(s->n), stream, *s) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_sgd_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_sgd *step) {
    TT__FLOATS(dtype, tt::sgd_run, stream, step)
}
}
