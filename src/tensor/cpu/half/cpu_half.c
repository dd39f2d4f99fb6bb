/* Kernels over stand-ins in f32 (wide.h), which the kernels of f32 then compute on. Products and convolutions of bf16
 * are oneDNN's where the processor has instructions for them. */
#include "tensor/cpu/half/cpu_half.h"

#include "base/error.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/cpu/onednn/onednn_product.h"

/* Leave the function with what `call`, of oneDNN, returns, if x is bf16 and oneDNN has something for it. */
#define BF16_BY_ONEDNN(x, call)                                 \
    do {                                                        \
        if ((x)->dtype == TT_BF16 && tt__onednn_takes_bf16()) { \
            tt_status done = (call);                            \
            if (done != TT_ERR_UNSUPPORTED)                     \
                return done;                                    \
        }                                                       \
    } while (0)

/* Compute `call` on the stand-ins w of y, a and b. */
#define OVER(y, a, b, call)                                  \
    do {                                                     \
        tt__wide w[3];                                       \
        tt_status status = tt__wide_three(w, (y), (a), (b)); \
        if (!status)                                         \
            status = (call);                                 \
        return tt__wide_end(status, 3, w);                   \
    } while (0)

/* oneDNN's bf16 product into rows that lie apart fills an odd number of columns of a up by zeros, which it multiplies
 * with the last one: an infinity there becomes NaN. */
static bool infinities_are_lost(const tt_tensor *y, const tt_tensor *a) {
    return a->shape.dim[1] % 2 && !tt__shape_is_contiguous(&y->shape, y->stride);
}

tt_status tt__cpu_matmul_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    if (!infinities_are_lost(y, a))
        BF16_BY_ONEDNN(y, tt__onednn_product(y, a, b, beta));
    tt__wide w[3] = {{.x = NULL}, {.x = NULL}, {.x = NULL}};
    tt_status status = tt__wide_begin(&w[0], y, beta != 0 ? TT__WIDE_BOTH : TT__WIDE_OUT);
    if (!status)
        status = tt__wide_begin(&w[1], a, TT__WIDE_IN);
    if (!status)
        status = tt__wide_begin(&w[2], b, TT__WIDE_IN);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, matmul)(&w[0].seen, &w[1].seen, &w[2].seen, beta);
    return tt__wide_end(status, 3, w);
}

tt_status tt__cpu_matmul_bias_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    BF16_BY_ONEDNN(y, tt__onednn_product_bias(y, a, b, bias));
    return TT_ERR_UNSUPPORTED;
}

/* ---- convolutions */

tt_status tt__cpu_conv2d_half(tt_tensor *y, const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias,
                              const tt__conv *conv) {
    BF16_BY_ONEDNN(y, tt__onednn_conv2d(y, x, weight, bias, conv));
    tt__wide w[4] = {{.x = NULL}, {.x = NULL}, {.x = NULL}, {.x = NULL}};
    tt_status status = tt__wide_three(w, y, x, weight);
    if (!status)
        status = tt__wide_begin(&w[3], bias, TT__WIDE_IN);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, conv2d)(&w[0].seen, &w[1].seen, &w[2].seen, tt__wide_seen(&w[3]), conv);
    return tt__wide_end(status, 4, w);
}

tt_status tt__cpu_conv2d_backward_data_half(tt_tensor *dx, const tt_tensor *g, const tt_tensor *weight,
                                            const tt__conv *conv) {
    BF16_BY_ONEDNN(dx, tt__onednn_conv2d_backward_data(dx, g, weight, conv));
    OVER(dx, g, weight, TT__F32_KERNEL(&w[0].seen, conv2d_backward_data)(&w[0].seen, &w[1].seen, &w[2].seen, conv));
}

tt_status tt__cpu_conv2d_backward_weight_half(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                              const tt__conv *conv) {
    BF16_BY_ONEDNN(dw, tt__onednn_conv2d_backward_weight(dw, db, x, g, conv));
    tt__wide w[4] = {{.x = NULL}, {.x = NULL}, {.x = NULL}, {.x = NULL}};
    tt_status status = tt__wide_three(w, dw, x, g);
    if (!status)
        status = tt__wide_begin(&w[3], db, TT__WIDE_OUT);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, conv2d_backward_weight)(&w[0].seen, tt__wide_seen(&w[3]), &w[1].seen,
                                                                    &w[2].seen, conv);
    return tt__wide_end(status, 4, w);
}

/* ---- softmax, dropout, pooling */

tt_status tt__cpu_softmax_half(tt_tensor *y, const tt_tensor *x) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, softmax)(&w[0].seen, &w[1].seen));
}

tt_status tt__cpu_softmax_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    OVER(dx, y, g, TT__F32_KERNEL(&w[0].seen, softmax_backward)(&w[0].seen, &w[1].seen, &w[2].seen));
}

tt_status tt__cpu_log_softmax_half(tt_tensor *y, const tt_tensor *x) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, log_softmax)(&w[0].seen, &w[1].seen));
}

tt_status tt__cpu_log_softmax_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    OVER(dx, y, g, TT__F32_KERNEL(&w[0].seen, log_softmax_backward)(&w[0].seen, &w[1].seen, &w[2].seen));
}

tt_status tt__cpu_dropout_half(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, dropout)(&w[0].seen, &w[1].seen, call));
}

tt_status tt__cpu_max_pool2d_half(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, max_pool2d)(&w[0].seen, at, &w[1].seen, pool));
}

tt_status tt__cpu_max_pool2d_backward_half(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                           const tt__pooling *pool) {
    OVER(dx, g, NULL, TT__F32_KERNEL(&w[0].seen, max_pool2d_backward)(&w[0].seen, &w[1].seen, at, pool));
}
