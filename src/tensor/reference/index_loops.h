/* Indexing, for every element type; part of common_loops.h, which says what TYPE and the rest are. */

static int64_t place_at(const tt__iter *it, int k, int64_t i) {
    return ((const int64_t *)(const void *)it->p[k])[i * it->step[k]];
}

/* View entry `i` of dimension `dim`; a value to walk over. */
static tt_tensor entry_of(const tt_tensor *x, int dim, int64_t i) {
    tt_tensor entry = *x;
    entry.shape.dim[dim] = 1;
    entry.data = (TYPE *)x->data + i * x->stride[dim];
    return entry;
}

static int64_t number_at(const tt_tensor *index, int64_t i) {
    return ((const int64_t *)index->data)[i * index->stride[0]];
}

static tt_status ref_index_select(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    for (int64_t n = 0; n < y->shape.dim[dim]; n++) {
        tt_tensor to = entry_of(y, dim, n), from = entry_of(x, dim, number_at(index, n));
        for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
            for (int64_t i = 0; i < it.n; i++)
                AT(0, i) = AT(1, i);
    }
    return TT_OK;
}

static tt_status ref_index_add(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    for (int64_t n = 0; n < x->shape.dim[dim]; n++) {
        tt_tensor to = entry_of(y, dim, number_at(index, n)), from = entry_of(x, dim, n);
        for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
            for (int64_t i = 0; i < it.n; i++)
                AT(0, i) = STORE(LOAD(AT(0, i)) + LOAD(AT(1, i)));
    }
    return TT_OK;
}

/* View x in the shape of `index` at entry 0 of dimension `dim`: index[p] strides of that dimension further lies q. */
static tt_tensor first_entries(const tt_tensor *x, int dim, const tt_tensor *index) {
    tt_tensor first = *x;
    first.shape = index->shape;
    first.stride[dim] = 0;
    return first;
}

static tt_status ref_gather(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    tt_tensor from = first_entries(x, dim, index);
    for (tt__iter it = TT__ITER_OVER(y, index, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = (&AT(2, i))[place_at(&it, 1, i) * x->stride[dim]];
    return TT_OK;
}

/* x may be larger than index, whose shape is walked: its first entries count. */
#define SCATTER(name, value)                                                                         \
    static tt_status ref_##name(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) { \
        tt_tensor first = first_entries(y, dim, index);                                              \
        const tt_tensor *walked[] = {&first, index, x};                                              \
        for (tt__iter it = tt__iter_row_major(3, walked); it.more; tt__iter_next(&it))               \
            for (int64_t i = 0; i < it.n; i++) {                                                     \
                TYPE *to = &AT(0, i) + place_at(&it, 1, i) * y->stride[dim];                         \
                *to = value;                                                                         \
            }                                                                                        \
        return TT_OK;                                                                                \
    }
SCATTER(scatter, AT(2, i))
SCATTER(scatter_add, STORE(LOAD(*to) + LOAD(AT(2, i))))
#undef SCATTER

#define INDEX_KERNELS                                                                                           \
    .index_select = ref_index_select, .index_add = ref_index_add, .gather = ref_gather, .scatter = ref_scatter, \
    .scatter_add = ref_scatter_add
