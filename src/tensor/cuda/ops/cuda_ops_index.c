/* Indexing and order: cuda_index.cu, cuda_sort.cu. */
#include "tensor/cuda/cuda_kernels.h"
#include "tensor/cuda/ops/cuda_ops.h"

/* x in another shape, with a stride of its own along `dim`; a value to walk over. */
static tt_tensor shaped_as(const tt_tensor *x, const tt_tensor *like, int dim, int64_t stride) {
    tt_tensor seen = *x;
    seen.shape = like->shape;
    seen.numel = like->numel;
    seen.stride[dim] = stride;
    return seen;
}

/* An index (n), the same for all lines along `dim`. */
static tt_tensor index_along(const tt_tensor *index, const tt_tensor *like, int dim) {
    tt_tensor seen = shaped_as(index, like, dim, 0);
    for (int d = 0; d < like->shape.ndim; d++)
        seen.stride[d] = d == dim ? index->stride[0] : 0;
    return seen;
}

static tt_status cuda_gather(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    const tt_tensor from = shaped_as(x, index, dim, 0);
    const tt__walk w = TT__CUDA_WALK(y, &from, index);
    TT__CUDA_ENQUEUE(y, "gather",
                     tt__cuda_gather(stream, tt__cuda_element_size[y->dtype], &w, x->stride[dim], x->shape.dim[dim]));
}

static tt_status cuda_index_select(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    const tt_tensor places = index_along(index, y, dim);
    return cuda_gather(y, x, dim, &places);
}

/* Entry 0 of dimension `dim` of x in the shape of `like`; a value to walk over. */
static tt_tensor first_entry(const tt_tensor *x, const tt_tensor *like, int dim) {
    tt_tensor first = shaped_as(x, like, dim, 0);
    first.numel = like->shape.dim[dim] ? like->numel / like->shape.dim[dim] : 0;
    first.shape.dim[dim] = 1;
    return first;
}

/* Lines along `dim` of `like`: of y, x and, unless NULL, index. */
static tt__cuda_lines lines_along(const tt_tensor *y, const tt_tensor *x, const tt_tensor *index, int dim,
                                  const tt_tensor *like) {
    const tt_tensor to = first_entry(y, like, dim), from = first_entry(x, like, dim);
    const tt_tensor places = index ? first_entry(index, like, dim) : to;
    return (tt__cuda_lines){.w = index ? TT__CUDA_WALK(&to, &from, &places) : TT__CUDA_WALK(&to, &from),
                            .n = like->shape.dim[dim],
                            .step = y->stride[dim],
                            .x_step = x->stride[dim],
                            .index_step = index ? index->stride[dim] : 0,
                            .places = y->shape.dim[dim]};
}

static tt_status cuda_scatter(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    const tt__cuda_lines lines = lines_along(y, x, index, dim, index);
    TT__CUDA_ENQUEUE(y, "scatter", tt__cuda_scatter(stream, tt__cuda_element_size[y->dtype], &lines));
}

static tt_status cuda_index_add(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    tt__cuda_state *state = tt__cuda_of(y);
    tt_status status = tt__cuda_enter(state);
    const tt__cuda_lines lines = lines_along(y, x, NULL, dim, x);
    tt__cuda_chains c = {
        .index = index->data, .n = lines.n, .index_step = index->stride[0], .destinations = y->shape.dim[dim]};
    if (status || !lines.w.n || !c.n)
        return status;
    size_t places = (size_t)c.n, words = places + (size_t)c.destinations;
    c.next = tt__cuda_scratch(state, words * sizeof *c.next + places * sizeof *c.heads);
    if (!c.next)
        return tt__cuda_host->last_status();
    c.last = c.next + places;
    c.heads = (bool *)(void *)(c.next + words);
    status = tt__cuda_done(tt__cuda_index_add(tt__cuda_stream(state), y->dtype, &lines, &c), y, "index_add");
    tt__cuda_scratch_free(state, c.next);
    return status;
}

/* A single line is left to index_add, whose work more threads share. */
static tt_status cuda_scatter_add(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    if (index->numel == index->shape.dim[dim]) {
        tt_tensor places = *index, from = shaped_as(x, index, dim, x->stride[dim]);
        places.shape = (tt_shape){.ndim = 1, .dim = {index->numel}};
        places.stride[0] = index->stride[dim];
        return cuda_index_add(y, &from, dim, &places);
    }
    const tt__cuda_lines lines = lines_along(y, x, index, dim, index);
    TT__CUDA_ENQUEUE(y, "scatter_add", tt__cuda_scatter_add(stream, y->dtype, &lines));
}

static tt_status cuda_triangle(tt_tensor *y, const tt_tensor *x, int64_t diagonal, bool upper) {
    const tt_tensor *const tensors[] = {y, x};
    const tt__iter it = tt__cuda_host->iter_row_major(2, tensors);
    const tt__walk w = tt__cuda_walk_of(&it, tensors);
    const int64_t *last = x->shape.dim + x->shape.ndim - 2;
    TT__CUDA_ENQUEUE(y, "triangle",
                     tt__cuda_triangle(stream, tt__cuda_element_size[y->dtype], &w, last[0], last[1], diagonal, upper));
}

static tt_status cuda_cumsum(tt_tensor *y, const tt_tensor *x, int dim, bool backwards) {
    const tt__cuda_lines lines = lines_along(y, x, NULL, dim, x);
    TT__CUDA_ENQUEUE(y, "cumsum", tt__cuda_cumsum(stream, y->dtype, &lines, backwards));
}

static tt_status cuda_sort(tt_tensor *y, tt_tensor *indices, const tt_tensor *x, bool descending) {
    const int last = x->shape.ndim - 1;
    tt__cuda_sort s = {.x = x->data, .y = y->data, .indices = indices->data, .descending = descending};
    s.n = x->shape.dim[last];
    s.k = y->shape.dim[last];
    s.rows = s.k ? y->numel / s.k : 0;
    if (!s.rows)
        return TT_OK;
    tt__cuda_state *state = tt__cuda_of(y);
    s.order = tt__cuda_scratch(state, (size_t)(2 * x->numel) * sizeof *s.order);
    if (!s.order)
        return tt__cuda_host->last_status();
    s.spare = s.order + x->numel;
    tt_status status = tt__cuda_done(tt__cuda_sort_run(tt__cuda_stream(state), y->dtype, &s), y, "sort");
    tt__cuda_scratch_free(state, s.order);
    return status;
}

static void add_index_ops(tt__kernels *k) {
    k->index_select = cuda_index_select;
    k->index_add = cuda_index_add;
    k->gather = cuda_gather;
    k->scatter = cuda_scatter;
    k->scatter_add = cuda_scatter_add;
    k->triangle = cuda_triangle;
    k->cumsum = cuda_cumsum;
    k->sort = cuda_sort;
}

void tt__cuda_index_ops(tt__cuda_tables *t) {
    add_index_ops(&t->floats);
    add_index_ops(&t->integers);
    add_index_ops(&t->booleans);
}
