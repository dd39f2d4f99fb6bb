/* Dropout: whether an element is kept follows from Philox and the element's place in y's memory, as on the cpu. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_choice.h"

#include "base/philox.h"

namespace tt {

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

cudaError_t tt__cuda_dropout(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__dropout *call) {
    TT__FLOATS(dtype, tt::dropout_run, stream, w, call)
}
}
