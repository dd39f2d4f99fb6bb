/* Reductions that every element type has: included by common_loops.h. */

/* Divide the dimensions: those along which y is repeated are reduced; the others number the results. */
static void divide_dimensions(const tt_tensor *y, const tt_tensor *x, tt_tensor *kept_y, tt_tensor *kept_x,
                              tt_tensor *reduced) {
    *kept_y = *y;
    *kept_x = *reduced = *x;
    kept_y->shape.ndim = kept_x->shape.ndim = reduced->shape.ndim = 0;
    for (int d = 0; d < x->shape.ndim; d++) {
        tt_tensor *to = y->stride[d] == 0 && x->shape.dim[d] != 1 ? reduced : kept_x;
        int at = to->shape.ndim++;
        to->shape.dim[at] = x->shape.dim[d];
        to->stride[at] = x->stride[d];
        if (to == reduced)
            continue;
        kept_y->shape.dim[at] = x->shape.dim[d];
        kept_y->stride[at] = y->stride[d];
        kept_y->shape.ndim = at + 1;
    }
}

/* Is some element's being 0 the same as `zero`? */
static bool has_element(const tt_tensor *x, bool zero) {
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            if ((AS_ORDER(AT(0, i)) == 0) == zero)
                return true;
    return false;
}

static tt_status ref_any(const tt_tensor *x, bool all, tt_tensor *y) {
    tt_tensor to, from, part;
    divide_dimensions(y, x, &to, &from, &part);
    for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            part.data = &AT(1, i);
            *(bool *)(void *)(it.p[0] + i * it.step[0]) = has_element(&part, all) != all;
        }
    return TT_OK;
}

static int64_t extreme_of(const TYPE *x, int64_t n, int64_t step, bool largest) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        ORDER v = AS_ORDER(x[i * step]), b = AS_ORDER(x[best * step]);
        if (!IS_NAN(b) && ((largest ? v > b : v < b) || IS_NAN(v)))
            best = i;
    }
    return best;
}

static tt_status ref_extreme(tt_tensor *y, tt_tensor *index, const tt_tensor *x, int dim, bool largest) {
    for (int64_t line = 0; line < y->numel; line++) {
        const TYPE *from = (const TYPE *)x->data + line_begin(x, dim, line);
        int64_t best = extreme_of(from, x->shape.dim[dim], x->stride[dim], largest);
        ((int64_t *)index->data)[line] = best;
        ((TYPE *)y->data)[line] = from[best * x->stride[dim]];
    }
    return TT_OK;
}

#define REDUCTION_COMMON_KERNELS .any = ref_any, .extreme = ref_extreme
