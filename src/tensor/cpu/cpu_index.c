/* Rows found by index: y (O,N,C) = rows of x (O,V,C), or rows of x (O,N,C) added to those of y (O,V,C). */
#include "tensor/cpu/cpu_kernels.h"

#include "tensor/device/parallel.h"

#include <string.h>

typedef struct indexed {
    int64_t O, N, V, C;
    const int64_t *index;
    size_t size; /* of an element */
    char *to;
    const char *from;
} indexed;

enum { BLOCK = 1 << 15, RANGES = 32 };

/* Describe the call; `many` (O,V,C) and `few` (O,N,C) are contiguous. */
static indexed indexed_rows(const tt_tensor *many, const tt_tensor *few, int dim, const tt_tensor *index) {
    indexed k = {.O = 1, .N = few->shape.dim[dim], .V = many->shape.dim[dim], .C = 1, .index = index->data};
    for (int d = 0; d < dim; d++)
        k.O *= many->shape.dim[d];
    for (int d = dim + 1; d < many->shape.ndim; d++)
        k.C *= many->shape.dim[d];
    k.size = tt_dtype_size(many->dtype);
    return k;
}

static void select_rows(void *user, int64_t begin, int64_t end) {
    const indexed *k = user;
    size_t row = (size_t)k->C * k->size;
    for (int64_t i = begin; i < end; i++)
        memcpy(k->to + (size_t)i * row, k->from + (size_t)(i / k->N * k->V + k->index[i % k->N]) * row, row);
}

tt_status tt__cpu_index_select(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    if (!y->contiguous || !x->contiguous || !index->contiguous || y->numel == 0)
        return tt__reference_kernels[y->dtype]->index_select(y, x, dim, index);
    indexed k = indexed_rows(x, y, dim, index);
    k.to = y->data;
    k.from = x->data;
    tt__parallel_for(k.O * k.N, k.C < BLOCK ? BLOCK / k.C : 1, select_rows, &k);
    return TT_OK;
}

/* Add to rows `begin` to `end` of y, in the order of x: each row has one thread. */
static void add_rows(void *user, int64_t begin, int64_t end) {
    const indexed *k = user;
    for (int64_t o = 0; o < k->O; o++)
        for (int64_t n = 0; n < k->N; n++) {
            int64_t v = k->index[n];
            if (v < begin || v >= end)
                continue;
            float *to = (float *)(void *)k->to + (o * k->V + v) * k->C;
            const float *from = (const float *)(const void *)k->from + (o * k->N + n) * k->C;
            for (int64_t c = 0; c < k->C; c++)
                to[c] += from[c];
        }
}

tt_status tt__cpu_index_add_f32(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    if (!y->contiguous || !x->contiguous || !index->contiguous || x->numel == 0)
        return tt__reference_kernels[TT_F32]->index_add(y, x, dim, index);
    indexed k = indexed_rows(y, x, dim, index);
    k.to = y->data;
    k.from = x->data;
    tt__parallel_for(k.V, x->numel < BLOCK ? k.V : (k.V + RANGES - 1) / RANGES, add_rows, &k);
    return TT_OK;
}
