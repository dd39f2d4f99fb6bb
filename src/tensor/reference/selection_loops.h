/* Comparisons and choices, element by element, which every element type has: included by common_loops.h. */

static bool compare_elements(TYPE a, TYPE b, tt__comparison op) {
    ORDER p = AS_ORDER(a), q = AS_ORDER(b);
    switch (op) {
    case TT__EQ:
        return p == q;
    case TT__NE:
        return p != q;
    case TT__LT:
        return p < q;
    case TT__LE:
        return p <= q;
    case TT__GT:
        return p > q;
    case TT__GE:
        return p >= q;
    }
    return false;
}

static tt_status ref_compare(const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y) {
    for (tt__iter it = TT__ITER_OVER(y, a, b); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            *(bool *)(void *)(it.p[0] + i * it.step[0]) = compare_elements(AT(1, i), AT(2, i), op);
    return TT_OK;
}

/* Element i of array k, bools. */
#define BOOL_AT(k, i) (*(const uint8_t *)(it.p[k] + (i)*it.step[k]) != 0)

static tt_status ref_where(tt_tensor *y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b) {
    for (tt__iter it = TT__ITER_OVER(y, condition, a, b); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = BOOL_AT(1, i) ? AT(2, i) : AT(3, i);
    return TT_OK;
}

static tt_status ref_masked_fill(tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when, double value) {
    TYPE element = FROM_F64(value);
    for (tt__iter it = TT__ITER_OVER(y, x, mask); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = BOOL_AT(2, i) == when ? element : AT(1, i);
    return TT_OK;
}

#define SELECTION_KERNELS .compare = ref_compare, .where = ref_where, .masked_fill = ref_masked_fill
