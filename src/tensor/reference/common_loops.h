/* Loops that every element type has. The file that includes this defines
 *   TYPE         an element in memory
 *   WIDE         what is computed with
 *   LOAD(v)      an element, as WIDE            STORE(w)     WIDE, rounded to an element
 *   FROM_I64(i), FROM_F64(f)   an element made of a number of another type
 *   SUM          what many are added up in, and SUM made an element by FROM_SUM(s)
 *   ORDER, AS_ORDER(v), IS_NAN(o)   what elements are compared as */
#include "tensor/core/element.h"
#include "tensor/reference/reference_device.h"
#include "tensor/shape/iter.h"

#define AT(k, i) (((TYPE *)(void *)it.p[k])[(i)*it.step[k]])

static tt_status ref_fill(tt_tensor *y, double value) {
    TYPE element = FROM_F64(value);
    for (tt__iter it = TT__ITER_OVER(y); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = element;
    return TT_OK;
}

static tt_status ref_copy(tt_tensor *y, const tt_tensor *x) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = AT(1, i);
    return TT_OK;
}

static tt_status ref_convert(tt_tensor *y, const tt_tensor *x) {
    int64_t size = (int64_t)tt_dtype_size(x->dtype);
    bool is_float = tt__is_float(x->dtype);
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            const void *p = it.p[1] + i * it.step[1] * size;
            AT(0, i) = is_float ? FROM_F64(tt__load_f64(x->dtype, p)) : FROM_I64(tt__load_i64(x->dtype, p));
        }
    return TT_OK;
}

#define BINARY(name, op)                                                                \
    static tt_status ref_##name(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) { \
        for (tt__iter it = TT__ITER_OVER(y, a, b); it.more; tt__iter_next(&it))         \
            for (int64_t i = 0; i < it.n; i++)                                          \
                AT(0, i) = STORE(LOAD(AT(1, i)) op LOAD(AT(2, i)));                     \
        return TT_OK;                                                                   \
    }
BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
#undef BINARY

/* Return where line number `line` along dimension d begins, in elements: the other dimensions are counted in row-major
 * order. */
static int64_t line_begin(const tt_tensor *x, int d, int64_t line) {
    int64_t at = 0;
    for (int k = x->shape.ndim - 1; k >= 0; k--) {
        if (k == d)
            continue;
        at += line % x->shape.dim[k] * x->stride[k];
        line /= x->shape.dim[k];
    }
    return at;
}

#include "tensor/reference/reduction_common_loops.h"
#include "tensor/reference/selection_loops.h"

/* NaN counts as largest. */
static tt_status ref_argmax(const tt_tensor *x, int dim, tt_tensor *y) {
    for (int64_t line = 0; line < y->numel; line++)
        ((int64_t *)y->data)[line] =
            extreme_of((const TYPE *)x->data + line_begin(x, dim, line), x->shape.dim[dim], x->stride[dim], true);
    return TT_OK;
}

#include "tensor/reference/index_loops.h"
#include "tensor/reference/order_loops.h"

#define COMMON_KERNELS                                                                                          \
    .fill = ref_fill, .copy = ref_copy, .convert = ref_convert, .add = ref_add, .sub = ref_sub, .mul = ref_mul, \
    .argmax = ref_argmax, INDEX_KERNELS, ORDER_KERNELS, REDUCTION_COMMON_KERNELS, SELECTION_KERNELS
