/* Recurrent cells, one step: a thread for each hidden value. The formulas are those of tensor/reference/rnn_loops.h. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_layers.h"

namespace tt {

template <class T> __device__ T *cell_at(const tt__cuda_matrix &m, int64_t row, int64_t column) {
    return (T *)m.p + row * m.row + column;
}

template <class T> __device__ wide<T> cell_get(const tt__cuda_matrix &m, int64_t row, int64_t column) {
    return load(cell_at<T>(m, row, column));
}

template <class T> __device__ void cell_put(const tt__cuda_matrix &m, int64_t row, int64_t column, wide<T> value) {
    store(cell_at<T>(m, row, column), value);
}

template <class W> __device__ W cell_sigmoid(W x) { return 1 / (1 + exp(-x)); }

/* The hidden part of column k, with its bias. */
template <class T> __device__ wide<T> cell_hidden(const tt__cuda_cell &c, int64_t b, int64_t k) {
    return cell_get<T>(c.gates, b, k) + load((const T *)c.bias + k);
}

template <class T> __device__ wide<T> cell_gate(const tt__cuda_cell &c, int64_t b, int64_t k) {
    return cell_get<T>(c.x, b, k) + cell_hidden<T>(c, b, k);
}

template <class T> __device__ void lstm_step(const tt__cuda_cell &s, int64_t b, int64_t j) {
    typedef wide<T> W;
    const int64_t H = s.H;
    const W i = cell_sigmoid(cell_gate<T>(s, b, j)), f = cell_sigmoid(cell_gate<T>(s, b, H + j));
    const W g = tanh(cell_gate<T>(s, b, 2 * H + j)), o = cell_sigmoid(cell_gate<T>(s, b, 3 * H + j));
    const W c = f * cell_get<T>(s.c, b, j) + i * g;
    cell_put<T>(s.c_next, b, j, c);
    cell_put<T>(s.y, b, j, o * tanh(c));
    cell_put<T>(s.gates, b, j, i);
    cell_put<T>(s.gates, b, H + j, f);
    cell_put<T>(s.gates, b, 2 * H + j, g);
    cell_put<T>(s.gates, b, 3 * H + j, o);
}

template <class T> __device__ void gru_step(const tt__cuda_cell &s, int64_t b, int64_t j) {
    typedef wide<T> W;
    const int64_t H = s.H;
    const W r = cell_sigmoid(cell_gate<T>(s, b, j)), z = cell_sigmoid(cell_gate<T>(s, b, H + j));
    const W hidden = cell_hidden<T>(s, b, 2 * H + j), n = tanh(cell_get<T>(s.x, b, 2 * H + j) + r * hidden);
    cell_put<T>(s.y, b, j, n + z * (cell_get<T>(s.h, b, j) - n));
    cell_put<T>(s.gates, b, j, r);
    cell_put<T>(s.gates, b, H + j, z);
    cell_put<T>(s.gates, b, 2 * H + j, n);
    cell_put<T>(s.gates, b, 3 * H + j, hidden);
}

template <class T> __global__ void rnn_cell(tt__cuda_cell s) {
    for (int64_t i = first_element(); i < s.B * s.H; i += all_threads()) {
        const int64_t b = i / s.H, j = i % s.H;
        if (s.cell == TT__CELL_LSTM) {
            lstm_step<T>(s, b, j);
        } else if (s.cell == TT__CELL_GRU) {
            gru_step<T>(s, b, j);
        } else {
            const wide<T> a = cell_gate<T>(s, b, j);
            cell_put<T>(s.y, b, j, s.cell == TT__CELL_TANH ? tanh(a) : a < 0 ? 0 : a);
        }
    }
}

template <class T> __device__ void lstm_slope(const tt__cuda_cell &d, int64_t b, int64_t j) {
    typedef wide<T> W;
    const int64_t H = d.H;
    const W i = cell_get<T>(d.gates, b, j), f = cell_get<T>(d.gates, b, H + j);
    const W g = cell_get<T>(d.gates, b, 2 * H + j), o = cell_get<T>(d.gates, b, 3 * H + j);
    const W t = tanh(cell_get<T>(d.c_next, b, j)), dh = cell_get<T>(d.g, b, j) + cell_get<T>(d.dh, b, j);
    const W dc = cell_get<T>(d.dc, b, j) + dh * o * (1 - t * t);
    cell_put<T>(d.x, b, j, dc * g * i * (1 - i));
    cell_put<T>(d.x, b, H + j, dc * cell_get<T>(d.c, b, j) * f * (1 - f));
    cell_put<T>(d.x, b, 2 * H + j, dc * i * (1 - g * g));
    cell_put<T>(d.x, b, 3 * H + j, dh * t * o * (1 - o));
    cell_put<T>(d.dc, b, j, dc * f);
}

template <class T> __device__ void gru_slope(const tt__cuda_cell &d, int64_t b, int64_t j) {
    typedef wide<T> W;
    const int64_t H = d.H;
    const W r = cell_get<T>(d.gates, b, j), z = cell_get<T>(d.gates, b, H + j);
    const W n = cell_get<T>(d.gates, b, 2 * H + j), hidden = cell_get<T>(d.gates, b, 3 * H + j);
    const W dh = cell_get<T>(d.g, b, j) + cell_get<T>(d.dh, b, j);
    const W dn = dh * (1 - z) * (1 - n * n), dr = dn * hidden * r * (1 - r);
    const W dz = dh * (cell_get<T>(d.h, b, j) - n) * z * (1 - z);
    cell_put<T>(d.x, b, j, dr);
    cell_put<T>(d.x, b, H + j, dz);
    cell_put<T>(d.x, b, 2 * H + j, dn);
    cell_put<T>(d.dhidden, b, j, dr);
    cell_put<T>(d.dhidden, b, H + j, dz);
    cell_put<T>(d.dhidden, b, 2 * H + j, dn * r);
    cell_put<T>(d.dh, b, j, dh * z);
}

template <class T> __global__ void rnn_cell_backward(tt__cuda_cell d) {
    for (int64_t i = first_element(); i < d.B * d.H; i += all_threads()) {
        const int64_t b = i / d.H, j = i % d.H;
        if (d.cell == TT__CELL_LSTM) {
            lstm_slope<T>(d, b, j);
        } else if (d.cell == TT__CELL_GRU) {
            gru_slope<T>(d, b, j);
        } else {
            const wide<T> y = cell_get<T>(d.y, b, j), dh = cell_get<T>(d.g, b, j) + cell_get<T>(d.dh, b, j);
            cell_put<T>(d.x, b, j, d.cell == TT__CELL_TANH ? dh * (1 - y * y) : y <= 0 ? 0 : dh);
        }
    }
}

template <class T> cudaError_t rnn_cell_run(cudaStream_t stream, const tt__cuda_cell *c) {
    return c->B && c->H ? launch(rnn_cell<T>, grid_for(c->B * c->H), stream, *c) : cudaSuccess;
}

template <class T> cudaError_t rnn_cell_backward_run(cudaStream_t stream, const tt__cuda_cell *c) {
    return c->B && c->H ? launch(rnn_cell_backward<T>, grid_for(c->B * c->H), stream, *c) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_rnn_cell(cudaStream_t stream, tt_dtype dtype,
                              const tt__cuda_cell *cell){TT__FLOATS(dtype, tt::rnn_cell_run, stream, cell)}

cudaError_t tt__cuda_rnn_cell_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cell *cell) {
    TT__FLOATS(dtype, tt::rnn_cell_backward_run, stream, cell)
}
}
