/* Elementwise kernels. Tensors of one dense layout are taken as one array, shared among threads if it is large; others
 * row by row. Plain loops serve where the result has gaps. */
#include "tensor/cpu/cpu_elementwise.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

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

static tt_status cpu_run_binary(binary_fn fn, const tt__kernels *plain, size_t plain_add, tt_tensor *y,
                                const tt_tensor *a, const tt_tensor *b) {
    if (TT__IS_FLAT(y, a, b)) {
        arrays k = {.binary = fn, .y = y->data, .a = a->data, .b = b->data};
        tt__parallel_for(y->numel, BLOCK, binary_block, &k);
        return TT_OK;
    }
    tt__iter it = TT__ITER_OVER(y, a, b);
    if (it.step[0] != 1 && it.n > 1)
        return (*(const tt__kernel_add *)(const void *)((const char *)plain + plain_add))(y, a, b);
    for (; it.more; tt__iter_next(&it))
        fn(it.n, (float *)(void *)it.p[1], it.step[1], (float *)(void *)it.p[2], it.step[2], (float *)(void *)it.p[0]);
    return TT_OK;
}

static const tt__kernels *plain_kernels(void) { return tt__reference_kernels[TT_F32]; }

tt_status tt__cpu_add_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return cpu_run_binary(tt__elementwise()->add, plain_kernels(), offsetof(tt__kernels, add), y, a, b);
}

tt_status tt__cpu_sub_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return cpu_run_binary(tt__elementwise()->sub, plain_kernels(), offsetof(tt__kernels, sub), y, a, b);
}

tt_status tt__cpu_mul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return cpu_run_binary(tt__elementwise()->mul, plain_kernels(), offsetof(tt__kernels, mul), y, a, b);
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
