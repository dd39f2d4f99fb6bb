/* Matrix products: matmul.cu. */
#include "tensor/cuda/ops.h"

static tt__cuda_matrix matrix_of(const tt_tensor *x) { return (tt__cuda_matrix){x->data, x->stride[0], x->stride[1]}; }

static tt_status multiply(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias, double beta) {
    const tt__cuda_product product = {.M = y->shape.dim[0],
                                      .N = y->shape.dim[1],
                                      .K = a->shape.dim[1],
                                      .y = matrix_of(y),
                                      .a = matrix_of(a),
                                      .b = matrix_of(b),
                                      .bias = bias ? bias->data : NULL,
                                      .beta = beta};
    TT__CUDA_ENQUEUE(y, "matmul", tt__cuda_matmul(stream, y->dtype, &product));
}

static tt_status op_matmul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    return multiply(y, a, b, NULL, beta);
}

static tt_status op_matmul_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    return multiply(y, a, b, bias, 0);
}

void tt__cuda_matmul_ops(tt__cuda_tables *t) {
    t->floats.matmul = op_matmul;
    t->floats.matmul_bias = op_matmul_bias;
}
