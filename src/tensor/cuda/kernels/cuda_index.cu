/* Elements moved by indices: any type, by its size. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_index.h"

namespace tt {

template <class T> __global__ void gather(tt__walk w, int64_t step, int64_t n) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<3> at(w, i);
        int64_t from = *element<int64_t>(w, 2, at.at[2]);
        *element<T>(w, 0, at.at[0]) = is_place(from, n) ? *element<T>(w, 1, at.at[1] + from * step) : 0;
    }
}

template <class T> cudaError_t gather_run(cudaStream_t stream, const tt__walk *w, int64_t step, int64_t n) {
    return w->n ? launch(gather<T>, grid_for(w->n), stream, *w, step, n) : cudaSuccess;
}

/* A thread for each line: places with the same destination are of one line, and the last one counts. */
template <class T> __global__ void scatter(tt__cuda_lines l) {
    for (int64_t i = first_element(); i < l.w.n; i += all_threads()) {
        places<3> at(l.w, i);
        for (int64_t k = 0; k < l.n; k++) {
            int64_t to = *element<int64_t>(l.w, 2, at.at[2] + k * l.index_step);
            if (is_place(to, l.places))
                *element<T>(l.w, 0, at.at[0] + to * l.step) = *element<T>(l.w, 1, at.at[1] + k * l.x_step);
        }
    }
}

template <class T> cudaError_t scatter_run(cudaStream_t stream, const tt__cuda_lines *l) {
    return l->w.n ? launch(scatter<T>, grid_for(l->w.n), stream, *l) : cudaSuccess;
}

template <class T> __global__ void triangle(tt__walk w, int64_t R, int64_t C, int64_t diagonal, bool upper) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<2> at(w, i);
        int64_t above = i % C - i / C % R;
        bool stays = upper ? above >= diagonal : above <= diagonal;
        *element<T>(w, 0, at.at[0]) = stays ? *element<T>(w, 1, at.at[1]) : 0;
    }
}

template <class T>
cudaError_t triangle_run(cudaStream_t stream, const tt__walk *w, int64_t R, int64_t C, int64_t diagonal, bool upper) {
    return w->n ? launch(triangle<T>, grid_for(w->n), stream, *w, R, C, diagonal, upper) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_gather(cudaStream_t stream, size_t size, const tt__walk *w, int64_t step,
                            int64_t n){TT__SIZES(size, tt::gather_run, stream, w, step, n)}

cudaError_t tt__cuda_scatter(cudaStream_t stream, size_t size,
                             const tt__cuda_lines *lines){TT__SIZES(size, tt::scatter_run, stream, lines)}

cudaError_t tt__cuda_triangle(cudaStream_t stream, size_t size, const tt__walk *w, int64_t R, int64_t C,
                              int64_t diagonal, bool upper) {
    TT__SIZES(size, tt::triangle_run, stream, w, R, C, diagonal, upper)
}
}
