/* y = a + b    da = g   db = g           y = a - b    da = g   db = -g           (summed over what was repeated) */
#include "autograd/broadcast.h"

#include "base/error.h"
#include "tensor/cpu/kernels.h"

static void add_f32(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y) {
    tt__elementwise()->add(n, a, a_step, b, b_step, y);
}

static void sub_f32(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y) {
    tt__elementwise()->sub(n, a, a_step, b, b_step, y);
}

static double add_f64(double a, double b) { return a + b; }

static double sub_f64(double a, double b) { return a - b; }

static tt_status add_backward(tt__node *node) {
    TT__TRY(tt__broadcast_backward(node, 0, 1, NULL));
    return tt__broadcast_backward(node, 1, 1, NULL);
}

static tt_status sub_backward(tt__node *node) {
    TT__TRY(tt__broadcast_backward(node, 0, 1, NULL));
    return tt__broadcast_backward(node, 1, -1, NULL);
}

tt_tensor *tt_add(tt_tensor *a, tt_tensor *b) {
    static const tt__binary op = {"tt_add", add_f32, add_f64, add_backward};
    return tt__binary_forward(&op, a, b);
}

tt_tensor *tt_sub(tt_tensor *a, tt_tensor *b) {
    static const tt__binary op = {"tt_sub", sub_f32, sub_f64, sub_backward};
    return tt__binary_forward(&op, a, b);
}
