/* Matrix products: matmul.cu. */
#include "tensor/cuda/cuda_ops.h"

static tt__cuda_matrix cuda_matrix_of(const tt_tensor *x) {
    return (tt__cuda_matrix){x->data, x->stride[0], x->stride[1]};
}

static tt_status cuda_product(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias,
                              double beta) {
    const tt__cuda_product product = {.M = y->shape.dim[0],
                                      .N = y->shape.dim[1],
                                      .K = a->shape.dim[1],
                                      .y = cuda_matrix_of(y),
                                      .a = cuda_matrix_of(a),
                                      .b = cuda_matrix_of(b),
                                      .bias = bias ? bias->data : NULL,
                                      .beta = beta};
    TT__CUDA_ENQUEUE(y, "matmul", tt__cuda_matmul(stream, y->dtype, &product));
}

static tt_status cuda_matmul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    return cuda_product(y, a, b, NULL, beta);
}

static tt_status cuda_matmul_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    return cuda_product(y, a, b, bias, 0);
}

void tt__cuda_matmul_ops(tt__cuda_tables *t) {
    t->floats.matmul = cuda_matmul;
    t->floats.matmul_bias = cuda_matmul_bias;
}
