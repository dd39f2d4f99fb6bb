/* Matrix products: by cuBLASLt (cuda_blas.h), or by our own kernel (cuda_matmul.cu) where that is not used or doesn't
 * take them. */
#include "tensor/cuda/libraries/cuda_blas.h"
#include "tensor/cuda/ops/cuda_ops.h"

/* ---- our own kernel ---- */

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

/* ---- by cuBLASLt ---- */

/* View the matrices in the last two dimensions as it reads them, in place. */
static tt__blas_matrix blas_matrix_of(const tt_tensor *x) {
    int row = x->shape.ndim - 2;
    const tt_tensor m = {.shape = {.ndim = 2, .dim = {x->shape.dim[row], x->shape.dim[row + 1]}},
                         .stride = {x->stride[row], x->stride[row + 1]}};
    int by = tt__matrix_is_stored(&m, 0) ? 0 : 1; /* of a single line the stride doesn't matter */
    int64_t length = m.shape.dim[1 - by];
    return (tt__blas_matrix){.p = x->data, .lead = m.shape.dim[by] == 1 ? length : m.stride[by], .turned = by == 1};
}

static tt__blas_product blas_product_of(const tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    int row = y->shape.ndim - 2;
    return (tt__blas_product){.dtype = y->dtype,
                              .M = y->shape.dim[row],
                              .N = y->shape.dim[row + 1],
                              .K = a->shape.dim[row + 1],
                              .batch = 1,
                              .y = blas_matrix_of(y),
                              .a = blas_matrix_of(a),
                              .b = blas_matrix_of(b)};
}

static tt_status cuda_matmul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    tt__blas_product product = blas_product_of(y, a, b);
    product.beta = beta;
    tt_status status = tt__blas_multiply(tt__cuda_of(y), &product);
    return status == TT_ERR_UNSUPPORTED ? cuda_product(y, a, b, NULL, beta) : status;
}

/* Where cuBLASLt doesn't take the bias it may take the product without it. */
static tt_status cuda_matmul_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    tt__blas_product product = blas_product_of(y, a, b);
    product.bias = bias->data;
    tt_status status = tt__blas_multiply(tt__cuda_of(y), &product);
    return status != TT_ERR_UNSUPPORTED || tt__cuda_of(y)->blas ? status : cuda_product(y, a, b, bias, 0);
}

/* ---- batches ---- */

/* Join as many dimensions of the batch, from the last one on, as have one step in each tensor; return how many
 * dimensions are left before them. */
static int join_batch(tt__blas_product *p, const tt_tensor *const x[3]) {
    int64_t *step[3] = {&p->y.step, &p->a.step, &p->b.step};
    int d = x[0]->shape.ndim - 3;
    for (; d >= 0; d--) {
        if (x[0]->shape.dim[d] == 1)
            continue;
        for (int i = 0; i < 3; i++) {
            if (p->batch == 1)
                *step[i] = x[i]->stride[d];
            else if (x[i]->stride[d] != *step[i] * p->batch)
                return d + 1;
        }
        p->batch *= x[0]->shape.dim[d];
    }
    return 0;
}

/* Move a matrix to number i of the first `dims` dimensions of its batch. */
static void *part_of_batch(const tt_tensor *x, int dims, int64_t i) {
    int64_t at = 0;
    for (int d = dims - 1; d >= 0; d--) {
        at += i % x->shape.dim[d] * x->stride[d];
        i /= x->shape.dim[d];
    }
    return (char *)x->data + at * (int64_t)tt__cuda_element_size[x->dtype];
}

static tt_status cuda_matmul_batch(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt_tensor *const tensors[] = {y, a, b};
    tt__blas_product product = blas_product_of(y, a, b);
    int dims = join_batch(&product, tensors);
    int64_t parts = 1;
    for (int d = 0; d < dims; d++)
        parts *= y->shape.dim[d];
    for (int64_t i = 0; i < parts; i++) {
        product.y.p = part_of_batch(y, dims, i);
        product.a.p = part_of_batch(a, dims, i);
        product.b.p = part_of_batch(b, dims, i);
        tt_status status = tt__blas_multiply(tt__cuda_of(y), &product);
        if (status)
            return status;
    }
    return TT_OK;
}

void tt__cuda_matmul_ops(tt__cuda_tables *t) {
    t->floats.matmul = cuda_matmul;
    t->floats.matmul_bias = cuda_matmul_bias;
    t->floats.matmul_batch = cuda_matmul_batch;
}
