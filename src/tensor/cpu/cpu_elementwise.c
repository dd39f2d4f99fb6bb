/* Kernels that go element by element. Tensors of one dense layout are taken as one array, shared among threads if it is
 * large; two inputs of other layouts row by row. Plain loops serve for the rest, and for formulas computed in
 * double. */
#include "tensor/cpu/cpu_kernels.h"
#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

#include <math.h>
#include <string.h>

/* Elements that one thread takes at a time: small enough to balance, large enough to pay. */
enum { BLOCK = 1 << 16 };

typedef void (*binary_fn)(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y);

typedef struct arrays {
    binary_fn binary;
    float *y;
    const float *a, *b;
    float factor;
} arrays;

/* ---- y = a op b */

static void binary_block(void *user, int64_t begin, int64_t end) {
    const arrays *k = user;
    k->binary(end - begin, k->a + begin, 1, k->b + begin, 1, k->y + begin);
}

static tt_status cpu_run_binary(binary_fn fn, tt__kernel_add plain, tt_tensor *y, const tt_tensor *a,
                                const tt_tensor *b) {
    if (TT__IS_FLAT(y, a, b)) {
        arrays k = {.binary = fn, .y = y->data, .a = a->data, .b = b->data};
        tt__parallel_for(y->numel, BLOCK, binary_block, &k);
        return TT_OK;
    }
    tt__iter it = TT__ITER_OVER(y, a, b);
    if (it.step[0] != 1 && it.n > 1)
        return plain(y, a, b);
    for (; it.more; tt__iter_next(&it))
        fn(it.n, (float *)(void *)it.p[1], it.step[1], (float *)(void *)it.p[2], it.step[2], (float *)(void *)it.p[0]);
    return TT_OK;
}

static const tt__kernels *plain_kernels(void) { return tt__reference_kernels[TT_F32]; }

tt_status tt__cpu_add_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return cpu_run_binary(tt__elementwise()->add, plain_kernels()->add, y, a, b);
}

tt_status tt__cpu_sub_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return cpu_run_binary(tt__elementwise()->sub, plain_kernels()->sub, y, a, b);
}

tt_status tt__cpu_mul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return cpu_run_binary(tt__elementwise()->mul, plain_kernels()->mul, y, a, b);
}

/* ---- y = x * factor */

static void scale_block(void *user, int64_t begin, int64_t end) {
    const arrays *k = user;
    tt__elementwise()->scale(end - begin, k->a + begin, k->factor, k->y + begin);
}

tt_status tt__cpu_scale_f32(tt_tensor *y, const tt_tensor *x, double factor) {
    if (!TT__IS_FLAT(y, x))
        return plain_kernels()->scale(y, x, factor);
    arrays k = {.y = y->data, .a = x->data, .factor = (float)factor};
    tt__parallel_for(y->numel, BLOCK, scale_block, &k);
    return TT_OK;
}

/* ---- relu */

static void relu_block(void *user, int64_t begin, int64_t end) {
    const arrays *k = user;
    tt__elementwise()->relu(end - begin, k->a + begin, k->y + begin);
}

tt_status tt__cpu_relu_f32(tt_tensor *y, const tt_tensor *x) {
    if (!TT__IS_FLAT(y, x))
        return plain_kernels()->relu(y, x);
    arrays k = {.y = y->data, .a = x->data};
    tt__parallel_for(y->numel, BLOCK, relu_block, &k);
    return TT_OK;
}

static void relu_backward_block(void *user, int64_t begin, int64_t end) {
    const arrays *k = user;
    tt__elementwise()->relu_backward(end - begin, k->a + begin, k->b + begin, k->y + begin);
}

tt_status tt__cpu_relu_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    if (!TT__IS_FLAT(dx, y, g))
        return plain_kernels()->relu_backward(dx, y, g);
    arrays k = {.y = dx->data, .a = y->data, .b = g->data};
    tt__parallel_for(dx->numel, BLOCK, relu_backward_block, &k);
    return TT_OK;
}

/* Elements of a formula that one thread takes at a time. */
enum { FORMULA_BLOCK = 1 << 14 };

typedef struct formula_arrays {
    const tt__unary *unary;
    const tt__binary *binary;
    int input;
    const float *x, *z, *g;
    float *y;
} formula_arrays;

/* ---- formulas: one input */

static void unary_block(void *user, int64_t begin, int64_t end) {
    const formula_arrays *k = user;
    tt__pointwise()->unary[k->unary->op](end - begin, k->x + begin, (float)k->unary->a, (float)k->unary->b,
                                         k->y + begin);
}

tt_status tt__cpu_unary_f32(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    if (!tt__pointwise()->unary[call->op] || !TT__IS_FLAT(y, x))
        return tt__reference_kernels[TT_F32]->unary(y, x, call);
    formula_arrays k = {.unary = call, .x = x->data, .y = y->data};
    tt__parallel_for(y->numel, FORMULA_BLOCK, unary_block, &k);
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
    tt__parallel_for(dx->numel, FORMULA_BLOCK, unary_backward_block, &k);
    return TT_OK;
}

/* ---- formulas: two inputs */

static void binary_formula_block(void *user, int64_t begin, int64_t end) {
    const formula_arrays *k = user;
    tt__pointwise()->binary[k->binary->op](end - begin, k->x + begin, 1, k->z + begin, 1, (float)k->binary->a,
                                           k->y + begin);
}

tt_status tt__cpu_binary_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call) {
    if (tt__pointwise()->binary[call->op] && TT__IS_FLAT(y, x, z)) {
        formula_arrays k = {.binary = call, .x = x->data, .z = z->data, .y = y->data};
        tt__parallel_for(y->numel, FORMULA_BLOCK, binary_formula_block, &k);
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
        tt__parallel_for(d->numel, FORMULA_BLOCK, binary_backward_block, &k);
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

/* ---- dropout */

/* Elements that one thread takes at a time, a multiple of Philox's four. */
enum { DROPOUT_BLOCK = 1 << 13 };

typedef struct dropout_arrays {
    const tt__dropout *call;
    const float *x;
    float *y;
} dropout_arrays;

static void dropout_block(void *user, int64_t begin, int64_t end) {
    const dropout_arrays *k = user;
    tt__pointwise()->dropout(begin, end, k->x, k->call->key, k->call->limit, (float)k->call->scale, k->y);
}

tt_status tt__cpu_dropout_f32(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    if (!TT__IS_FLAT(y, x))
        return tt__reference_kernels[TT_F32]->dropout(y, x, call);
    dropout_arrays k = {.call = call, .x = x->data, .y = y->data};
    tt__parallel_for(y->numel, DROPOUT_BLOCK, dropout_block, &k);
    return TT_OK;
}

/* ---- copies of any type, by the size of its elements */

/* Copy n elements of `size` bytes; steps in elements. */
static void copy_row(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n, size_t size) {
    if (dst_step == 1 && src_step == 1) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
#define COPY_AS(type)               \
    for (int64_t i = 0; i < n; i++) \
    ((type *)(void *)dst)[i * dst_step] = ((const type *)(const void *)src)[i * src_step]
    if (size == 4)
        COPY_AS(uint32_t);
    else if (size == 8)
        COPY_AS(uint64_t);
    else if (size == 2)
        COPY_AS(uint16_t);
    else
        COPY_AS(uint8_t);
#undef COPY_AS
}

tt_status tt__cpu_copy(tt_tensor *y, const tt_tensor *x) {
    size_t size = tt_dtype_size(y->dtype);
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        copy_row(it.p[0], it.step[0], it.p[1], it.step[1], it.n, size);
    return TT_OK;
}

/* ---- y = value */

static void clear_bytes(void *user, int64_t begin, int64_t end) {
    memset((char *)user + begin, 0, (size_t)(end - begin));
}

/* Zeros, of which gradients are full, are bytes of 0 in every element type. */
tt_status tt__cpu_fill(tt_tensor *y, double value) {
    enum { BLOCK = 1 << 20 };
    if (value != 0 || signbit(value) || !TT__IS_FLAT(y))
        return tt__reference_kernels[y->dtype]->fill(y, value);
    tt__parallel_for(y->numel * (int64_t)tt_dtype_size(y->dtype), BLOCK, clear_bytes, y->data);
    return TT_OK;
}
