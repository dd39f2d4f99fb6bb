/* Recurrent cells: cuda_rnn.cu. */
#include "tensor/cuda/cuda_kernels_layers.h"
#include "tensor/cuda/ops/cuda_ops.h"

static tt__cuda_matrix cell_matrix(const tt_tensor *x) {
    return x ? (tt__cuda_matrix){x->data, x->stride[0], 1} : (tt__cuda_matrix){0};
}

static tt_status cuda_rnn_cell(tt_tensor *y, const tt__cell_step *step) {
    const tt__cuda_cell c = {.cell = step->cell,
                             .B = y->shape.dim[0],
                             .H = y->shape.dim[1],
                             .x = cell_matrix(step->x),
                             .gates = cell_matrix(step->gates),
                             .y = cell_matrix(y),
                             .h = cell_matrix(step->h),
                             .c = cell_matrix(step->c),
                             .c_next = cell_matrix(step->c_next),
                             .bias = step->bias->data};
    TT__CUDA_ENQUEUE(y, "rnn_cell", tt__cuda_rnn_cell(stream, y->dtype, &c));
}

static tt_status cuda_rnn_cell_backward(tt_tensor *dx, const tt__cell_grad *grad) {
    const tt__cuda_cell c = {.cell = grad->cell,
                             .B = grad->y->shape.dim[0],
                             .H = grad->y->shape.dim[1],
                             .x = cell_matrix(dx),
                             .gates = cell_matrix(grad->gates),
                             .y = cell_matrix(grad->y),
                             .h = cell_matrix(grad->h),
                             .c = cell_matrix(grad->c),
                             .c_next = cell_matrix(grad->c_next),
                             .g = cell_matrix(grad->g),
                             .dh = cell_matrix(grad->dh),
                             .dc = cell_matrix(grad->dc),
                             .dhidden = cell_matrix(grad->dhidden)};
    TT__CUDA_ENQUEUE(dx, "rnn_cell_backward", tt__cuda_rnn_cell_backward(stream, dx->dtype, &c));
}

void tt__cuda_rnn_ops(tt__cuda_tables *t) {
    t->floats.rnn_cell = cuda_rnn_cell;
    t->floats.rnn_cell_backward = cuda_rnn_cell_backward;
}
