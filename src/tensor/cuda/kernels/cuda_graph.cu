/* Setting the numbers of a graph. They travel as a kernel's parameters: unlike a copy from the host's memory, this
 * never waits, and the host may change its words at once. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels.h"

#include <string.h>

namespace tt {

struct graph_words {
    uint64_t word[TT__CUDA_WORDS];
    int64_t n;
};
static_assert(sizeof(graph_words) <= 4000, "a kernel's parameters have 4096 bytes");

__global__ void set_words(graph_words w, uint64_t *to) {
    for (int64_t i = first_element(); i < w.n; i += all_threads())
        to[i] = w.word[i];
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_set_words(cudaStream_t stream, void *to, const uint64_t *words, size_t n) {
    tt::graph_words w;
    if (n > TT__CUDA_WORDS)
        return cudaErrorInvalidValue;
    memset(&w, 0, sizeof w);
    memcpy(w.word, words, n * sizeof *words);
    w.n = (int64_t)n;
    return n ? tt::launch(tt::set_words, tt::grid_for(w.n), stream, w, (uint64_t *)to) : cudaSuccess;
}
}
