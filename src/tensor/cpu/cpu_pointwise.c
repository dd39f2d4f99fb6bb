/* Formulas element by element, as cpu_elementwise.c has it: one array where the layouts agree, shared among threads;
 * two inputs also row by row. The plain loops serve for the rest, and for formulas that are computed in double. */
#include "tensor/cpu/cpu_pointwise.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

/* Elements that one thread takes at a time. */
enum { BLOCK = 1 << 14 };

typedef struct formula_arrays {
    const tt__unary *unary;
    const tt__binary *binary;
    int input;
    const float *x, *z, *g;
    float *y;
} formula_arrays;

/* ---- one input */

static void unary_block(void *user, int64_t begin, int64_t end) {
    const formula_arrays *k = user;
    tt__pointwise()->unary[k->unary->op](end - begin, k->x + begin, (float)k->unary->a, (float)k->unary->b,
                                         k->y + begin);
}

tt_status tt__cpu_unary_f32(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    if (!tt__pointwise()->unary[call->op] || !TT__IS_FLAT(y, x))
        return tt__reference_kernels[TT_F32]->unary(y, x, call);
    formula_arrays k = {.unary = call, .x = x->data, .y = y->data};
    tt__parallel_for(y->numel, BLOCK, unary_block, &k);
    return TT_OK;
}

static void unary_backward_block(void *user, int64_t begin, int64_t end) {
    const formula_arrays *k = user;
    tt__pointwise()->unary_backward[k->unary->op](end - begin, k->x + begin, k->g + begin, (float)k->unary->a,
                                                  (float)k->unary->b, k->y + begin);
}

tt_status tt__cpu_unary_backward_f32(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call) {
    if (!tt__pointwise()->unary_backward[call->op] || !TT__IS_FLAT(dx, v, g))
        return tt__reference_kernels[TT_F32]->unary_backward(dx, v, g, call);
    formula_arrays k = {.unary = call, .x = v->data, .g = g->data, .y = dx->data};
    tt__parallel_for(dx->numel, BLOCK, unary_backward_block, &k);
    return TT_OK;
}

/* ---- two inputs */

static void binary_formula_block(void *user, int64_t begin, int64_t end) {
    const formula_arrays *k = user;
    tt__pointwise()->binary[k->binary->op](end - begin, k->x + begin, 1, k->z + begin, 1, (float)k->binary->a,
                                           k->y + begin);
}

tt_status tt__cpu_binary_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call) {
    if (tt__pointwise()->binary[call->op] && TT__IS_FLAT(y, x, z)) {
        formula_arrays k = {.binary = call, .x = x->data, .z = z->data, .y = y->data};
        tt__parallel_for(y->numel, BLOCK, binary_formula_block, &k);
        return TT_OK;
    }
    tt__iter it = TT__ITER_OVER(y, x, z);
    if (!tt__pointwise()->binary[call->op] || (it.step[0] != 1 && it.n > 1))
        return tt__reference_kernels[TT_F32]->binary(y, x, z, call);
    for (; it.more; tt__iter_next(&it))
        tt__pointwise()->binary[call->op](it.n, (float *)(void *)it.p[1], it.step[1], (float *)(void *)it.p[2],
                                          it.step[2], (float)call->a, (float *)(void *)it.p[0]);
    return TT_OK;
}

static void binary_backward_block(void *user, int64_t begin, int64_t end) {
    const formula_arrays *k = user;
    tt__pointwise()->binary_backward[k->input][k->binary->op](end - begin, k->x + begin, 1, k->z + begin, 1,
                                                              k->g + begin, 1, (float)k->binary->a, k->y + begin);
}

tt_status tt__cpu_binary_backward_f32(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                      const tt__binary *call, int input) {
    if (tt__pointwise()->binary_backward[input][call->op] && TT__IS_FLAT(d, x, z, g)) {
        formula_arrays k = {.binary = call, .input = input, .x = x->data, .z = z->data, .g = g->data, .y = d->data};
        tt__parallel_for(d->numel, BLOCK, binary_backward_block, &k);
        return TT_OK;
    }
    tt__iter it = TT__ITER_OVER(d, x, z, g);
    if (!tt__pointwise()->binary_backward[input][call->op] || (it.step[0] != 1 && it.n > 1))
        return tt__reference_kernels[TT_F32]->binary_backward(d, x, z, g, call, input);
    for (; it.more; tt__iter_next(&it))
        tt__pointwise()->binary_backward[input][call->op](
            it.n, (float *)(void *)it.p[1], it.step[1], (float *)(void *)it.p[2], it.step[2], (float *)(void *)it.p[3],
            it.step[3], (float)call->a, (float *)(void *)it.p[0]);
    return TT_OK;
}
