/* Convolutions of the fake of cuDNN: one walk over all pairs of an element of x and one of w that meet in an element of
 * y, whichever of the three is made. */
#include "cudnn_run.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <atomic>
#include <cstring>
#include <vector>

namespace fake_cudnn {

int64_t type_size(int type) {
    return type == DOUBLE ? 8 : type == FLOAT || type == INT32 ? 4 : type == BOOLEAN ? 1 : 2;
}

bool operation_fits(const operation &op) {
    const tensor &x = op.x, &y = op.y, &w = op.w;
    if (x.type != y.type || x.type != w.type || (op.win.compute == DOUBLE) != (x.type == DOUBLE))
        return false;
    if (x.dim[0] != y.dim[0] || y.dim[1] != w.dim[0] || x.dim[1] % w.dim[1] || y.dim[1] % (x.dim[1] / w.dim[1]))
        return false;
    for (int d = 0; d < 2; d++) {
        int64_t reach = op.win.dilation[d] * (w.dim[d + 2] - 1) + 1;
        int64_t room = x.dim[d + 2] + op.win.before[d] + op.win.after[d] - reach;
        if (room < 0 || room / op.win.stride[d] + 1 != y.dim[d + 2])
            return false;
    }
    return true;
}

double element_load(int type, const void *p, int64_t i) {
    return type == DOUBLE  ? ((const double *)p)[i]
           : type == FLOAT ? ((const float *)p)[i]
           : type == HALF  ? __half2float(((const __half *)p)[i])
                           : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

void element_store(int type, void *p, int64_t i, double value) {
    if (type == DOUBLE)
        ((double *)p)[i] = value;
    else if (type == FLOAT)
        ((float *)p)[i] = (float)value;
    else if (type == HALF)
        ((__half *)p)[i] = __float2half_rn((float)value);
    else
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)value);
}

double element_rounded(int type, double value) {
    double storage;
    element_store(type, &storage, 0, value);
    return element_load(type, &storage, 0);
}

/* f32 with the 10 bits of TF32. */
static float as_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~(uint32_t)0x1fff;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static int64_t place(const tensor &t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3];
}

template <class Visit> static void visit_pairs(const operation &op, Visit visit) {
    const tensor &x = op.x, &y = op.y, &w = op.w;
    const int64_t per_group = y.dim[1] / (x.dim[1] / w.dim[1]), taps = w.dim[2] * w.dim[3];
    const int64_t pixels = y.dim[2] * y.dim[3];
    for (int64_t n = 0; n < y.dim[0]; n++)
        for (int64_t k = 0; k < y.dim[1]; k++)
            for (int64_t c = 0; c < w.dim[1]; c++)
                for (int64_t at = 0; at < pixels * taps; at++) {
                    int64_t p = at / taps / y.dim[3], q = at / taps % y.dim[3];
                    int64_t r = at % taps / w.dim[3], s = at % taps % w.dim[3];
                    int64_t h = p * op.win.stride[0] - op.win.before[0] + r * op.win.dilation[0];
                    int64_t i = q * op.win.stride[1] - op.win.before[1] + s * op.win.dilation[1];
                    if (h >= 0 && i >= 0 && h < x.dim[2] && i < x.dim[3])
                        visit(place(x, n, k / per_group * w.dim[1] + c, h, i), place(y, n, k, p, q),
                              place(w, k, c, r, s));
                }
}

/* Sums have the computing type. */
template <class W> static void run_as(const engine &e, const void *const p[3], void *made_p, const tensor &made) {
    const operation &op = e.op;
    std::vector<W> sum((size_t)(made.dim[0] * made.dim[1] * made.dim[2] * made.dim[3]), 0);
    auto number = [&](const tensor &t, int which, int64_t at) {
        W value = (W)element_load(t.type, p[which], at);
        return e.numbers == AS_TF32 && t.type == FLOAT ? (W)as_tf32((float)value) : value;
    };
    visit_pairs(op, [&](int64_t x, int64_t y, int64_t w) {
        size_t to = (size_t)(op.makes == FORWARD ? y : op.makes == BACKWARD_DATA ? x : w);
        W a = op.makes == BACKWARD_DATA ? number(op.y, 1, y) : number(op.x, 0, x);
        W b = op.makes == BACKWARD_WEIGHT ? number(op.y, 1, y) : number(op.w, 2, w);
        sum[to] += a * b;
        if (e.numbers == ROUNDS_PARTS)
            sum[to] = (W)element_rounded(made.type, (double)sum[to]);
    });
    static std::atomic<int> calls{0};
    W noise = e.numbers == NOISY ? (W)(++calls % 7 + 1) / 16 : 0;
    for (size_t i = 0; i < sum.size(); i++) {
        W value = (W)op.alpha * sum[i] + noise;
        if (op.beta != 0)
            value += (W)op.beta * (W)element_load(made.type, made_p, (int64_t)i);
        element_store(made.type, made_p, (int64_t)i, (double)value);
    }
}

void operation_run(const engine &e, const void *x, void *y, void *w, void *workspace) {
    const void *const p[3] = {x, y, w};
    const operation &op = e.op;
    if (e.workspace)
        memset(workspace, 0xff, (size_t)e.workspace);
    const tensor &made = op.makes == FORWARD ? op.y : op.makes == BACKWARD_DATA ? op.x : op.w;
    void *to = op.makes == FORWARD ? y : op.makes == BACKWARD_DATA ? (void *)x : w;
    if (made.type == DOUBLE)
        run_as<double>(e, p, to, made);
    else
        run_as<float>(e, p, to, made);
}

} /* namespace fake_cudnn */
