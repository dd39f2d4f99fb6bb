/* Comparisons, elements chosen by them, and dropout: a thread for each element. What is chosen is moved by its size. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "base/philox.h"
#include "tensor/cuda/cuda_kernels.h"

namespace tt {

template <class W> __device__ bool holds(W a, W b, tt__comparison op) {
    switch (op) {
    case TT__EQ:
        return a == b;
    case TT__NE:
        return a != b;
    case TT__LT:
        return a < b;
    case TT__LE:
        return a <= b;
    case TT__GT:
        return a > b;
    default:
        return a >= b;
    }
}

template <class T> __global__ void compare(tt__walk w, tt__comparison op) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<3> at(w, i);
        bool yes = holds(load(element<T>(w, 1, at.at[1])), load(element<T>(w, 2, at.at[2])), op);
        element<boolean>(w, 0, at.at[0])->set = yes;
    }
}

template <class T> cudaError_t compare_run(cudaStream_t stream, const tt__walk *w, tt__comparison op) {
    return w->n ? launch(compare<T>, grid_for(w->n), stream, *w, op) : cudaSuccess;
}

template <class T> __global__ void where(tt__walk w) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<4> at(w, i);
        bool first = load(element<boolean>(w, 1, at.at[1]));
        *element<T>(w, 0, at.at[0]) = first ? *element<T>(w, 2, at.at[2]) : *element<T>(w, 3, at.at[3]);
    }
}

template <class T> cudaError_t where_run(cudaStream_t stream, const tt__walk *w) {
    return w->n ? launch(where<T>, grid_for(w->n), stream, *w) : cudaSuccess;
}

template <class T> __global__ void masked_fill(tt__walk w, bool when, T value) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<3> at(w, i);
        bool filled = (load(element<boolean>(w, 2, at.at[2])) != 0) == when;
        *element<T>(w, 0, at.at[0]) = filled ? value : *element<T>(w, 1, at.at[1]);
    }
}

template <class T> cudaError_t masked_fill_run(cudaStream_t stream, const tt__walk *w, bool when, uint64_t value) {
    return w->n ? launch(masked_fill<T>, grid_for(w->n), stream, *w, when, (T)value) : cudaSuccess;
}

/* ---- dropout: Philox and an element's place in y's memory decide whether it is kept, as on the cpu ---- */

constexpr int WORDS = 4; /* of a counter: one an element */

/* A walk goes in the order of y's memory, and y is dense: element i lies at place i. A thread takes WORDS of them. */
template <class T> __global__ void dropout(tt__walk w, tt__dropout call) {
    wide<T> scale = (wide<T>)call.scale;
    const uint64_t key = call.key_at ? *call.key_at : call.key;
    for (int64_t c = first_element(); c * WORDS < w.n; c += all_threads()) {
        uint32_t words[WORDS];
        tt__philox(key, (uint64_t)c, words);
        for (int k = 0; k < WORDS && c * WORDS + k < w.n; k++) {
            places<2> at(w, c * WORDS + k);
            wide<T> x = load(element<T>(w, 1, at.at[1]));
            store(element<T>(w, 0, at.at[0]), words[k] >= call.limit ? x * scale : 0);
        }
    }
}

template <class T> cudaError_t dropout_run(cudaStream_t stream, const tt__walk *w, const tt__dropout *call) {
    return w->n ? launch(dropout<T>, grid_for((w->n + WORDS - 1) / WORDS), stream, *w, *call) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_compare(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, tt__comparison op) {
    if (dtype == TT_BOOL)
        return tt::compare_run<tt::boolean>(stream, w, op);
    TT__NUMBERS(dtype, tt::compare_run, stream, w, op)
}

cudaError_t tt__cuda_where(cudaStream_t stream, size_t size,
                           const tt__walk *w){TT__SIZES(size, tt::where_run, stream, w)}

cudaError_t tt__cuda_masked_fill(cudaStream_t stream, size_t size, const tt__walk *w, bool when,
                                 uint64_t value){TT__SIZES(size, tt::masked_fill_run, stream, w, when, value)}

cudaError_t tt__cuda_dropout(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__dropout *call) {
    TT__FLOATS(dtype, tt::dropout_run, stream, w, call)
}
}
