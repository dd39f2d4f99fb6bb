/* y = a * b    da = g * b   db = g * a   (summed over what was repeated) */
#include "autograd/broadcast.h"

#include "base/error.h"
#include "tensor/cpu/kernels.h"

static void mul_f32(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y) {
    tt__elementwise()->mul(n, a, a_step, b, b_step, y);
}

static double mul_f64(double a, double b) { return a * b; }

static tt_status mul_backward(tt__node *node) {
    TT__TRY(tt__broadcast_backward(node, 0, 1, node->input[1]));
    return tt__broadcast_backward(node, 1, 1, node->input[0]);
}

tt_tensor *tt_mul(tt_tensor *a, tt_tensor *b) {
    static const tt__binary op = {"tt_mul", mul_f32, mul_f64, mul_backward};
    return tt__binary_forward(&op, a, b);
}
