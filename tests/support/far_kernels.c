/* The kernels of the device "far": see tensor/kernels/kernels.h for what each computes. B batch, V classes. */
#include "support/far_device.h"
#include "tensor/kernels/kernels.h"

#include <math.h>

static float *floats(const tt_tensor *x) { return far_device_near(x->data); }

static const int64_t *integers(const tt_tensor *x) { return far_device_near(x->data); }

/* ---- any layout ---- */

/* Some dimensions of a tensor, as a shape to count through. */
typedef struct chosen {
    int n, dim[TT_MAX_DIMS];
} chosen;

static chosen all_dims(const tt_tensor *x) {
    chosen c = {.n = x->shape.ndim};
    for (int k = 0; k < c.n; k++)
        c.dim[k] = k;
    return c;
}

static int64_t count_of(const tt_tensor *x, const chosen *c) {
    int64_t n = 1;
    for (int k = 0; k < c->n; k++)
        n *= x->shape.dim[c->dim[k]];
    return n;
}

/* Where number i of the chosen dimensions, in row-major order, lies in x. */
static int64_t place(const tt_tensor *x, const chosen *c, int64_t i) {
    int64_t at = 0;
    for (int k = c->n - 1; k >= 0; k--) {
        int64_t size = x->shape.dim[c->dim[k]];
        at += i % size * x->stride[c->dim[k]];
        i /= size;
    }
    return at;
}

static tt_status far_fill(tt_tensor *y, double value) {
    const chosen c = all_dims(y);
    for (int64_t i = 0; i < y->numel; i++)
        floats(y)[place(y, &c, i)] = (float)value;
    return TT_OK;
}

static tt_status far_copy(tt_tensor *y, const tt_tensor *x) {
    const chosen c = all_dims(y);
    for (int64_t i = 0; i < y->numel; i++)
        floats(y)[place(y, &c, i)] = floats(x)[place(x, &c, i)];
    return TT_OK;
}

static tt_status far_copy_i64(tt_tensor *y, const tt_tensor *x) {
    const chosen c = all_dims(y);
    int64_t *to = far_device_near(y->data);
    for (int64_t i = 0; i < y->numel; i++)
        to[place(y, &c, i)] = integers(x)[place(x, &c, i)];
    return TT_OK;
}

static tt_status far_relu(tt_tensor *y, const tt_tensor *x) {
    const chosen c = all_dims(y);
    for (int64_t i = 0; i < y->numel; i++) {
        float v = floats(x)[place(x, &c, i)];
        floats(y)[place(y, &c, i)] = v < 0 ? 0 : v;
    }
    return TT_OK;
}

static tt_status far_relu_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    const chosen c = all_dims(dx);
    for (int64_t i = 0; i < dx->numel; i++)
        floats(dx)[place(dx, &c, i)] = floats(y)[place(y, &c, i)] <= 0 ? 0 : floats(g)[place(g, &c, i)];
    return TT_OK;
}

static tt_status far_sum(tt_tensor *y, const tt_tensor *x, double factor) {
    chosen kept = {.n = 0}, summed = {.n = 0};
    for (int d = 0; d < x->shape.ndim; d++) {
        chosen *c = y->stride[d] == 0 ? &summed : &kept;
        c->dim[c->n++] = d;
    }
    int64_t n = count_of(x, &summed);
    for (int64_t i = 0; i < count_of(x, &kept); i++) {
        double total = 0;
        for (int64_t k = 0; k < n; k++)
            total += (double)floats(x)[place(x, &kept, i) + place(x, &summed, k)];
        floats(y)[place(y, &kept, i)] = (float)(total * factor);
    }
    return TT_OK;
}

/* y (M,N)  a (M,K)  b (K,N) */
static tt_status far_matmul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    int64_t M = y->shape.dim[0], N = y->shape.dim[1], K = a->shape.dim[1];
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float *out = floats(y) + i * y->stride[0] + j * y->stride[1];
            const float *row = floats(a) + i * a->stride[0], *column = floats(b) + j * b->stride[1];
            double total = beta == 0 ? 0 : (double)*out;
            for (int64_t k = 0; k < K; k++)
                total += (double)row[k * a->stride[1]] * (double)column[k * b->stride[0]];
            *out = (float)total;
        }
    return TT_OK;
}

/* ---- contiguous ---- */

static tt_status far_cross_entropy(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    double total = 0;
    for (int64_t b = 0; b < B; b++) {
        const float *row = floats(x) + b * V;
        double max = (double)row[0], sum = 0;
        for (int64_t v = 1; v < V; v++)
            max = fmax(max, (double)row[v]);
        for (int64_t v = 0; v < V; v++)
            sum += exp((double)row[v] - max);
        floats(stats)[2 * b] = (float)max;
        floats(stats)[2 * b + 1] = (float)sum;
        total += log(sum) + max - (double)row[integers(t)[b]];
    }
    floats(loss)[0] = (float)(total / (double)B);
    return TT_OK;
}

static tt_status far_cross_entropy_backward(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                            const tt_tensor *stats, const tt_tensor *g) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    double factor = (double)floats(g)[0] / (double)B;
    for (int64_t i = 0; i < B * V; i++) {
        const float *s = floats(stats) + i / V * 2;
        double p = exp((double)floats(x)[i] - (double)s[0]) / (double)s[1];
        floats(dx)[i] = (float)((p - (i % V == integers(t)[i / V])) * factor);
    }
    return TT_OK;
}

static tt_status far_find_outside(const tt_tensor *x, int64_t low, int64_t high, int64_t *index, int64_t *value) {
    const chosen c = all_dims(x);
    *index = -1;
    for (int64_t i = 0; i < x->numel && *index < 0; i++) {
        *value = integers(x)[place(x, &c, i)];
        if (*value < low || *value > high)
            *index = i;
    }
    return TT_OK;
}

static tt_status far_step(tt_tensor *p, tt__optim_rule rule, const tt__update *u) {
    const float lr = (float)u->option[TT__SGD_LR], momentum = (float)u->option[TT__SGD_MOMENTUM];
    const float undamped = (float)(1 - u->option[TT__SGD_DAMPENING]), decay = (float)u->option[TT__SGD_WEIGHT_DECAY];
    const float *g = far_device_near(u->g);
    float *buf = u->state[0] ? far_device_near(u->state[0]) : NULL;
    if (rule != TT__RULE_SGD)
        return TT_ERR_UNSUPPORTED;
    for (int64_t i = 0; i < u->n; i++) {
        float *w = floats(p) + i, d = g[i] + decay * *w;
        if (buf) {
            buf[i] = u->fresh[0] ? d : momentum * buf[i] + undamped * d;
            d = u->option[TT__SGD_NESTEROV] != 0 ? d + momentum * buf[i] : buf[i];
        }
        *w -= lr * d;
    }
    return TT_OK;
}

/* ---- tables ---- */

static const tt__kernels f32 = {.fill = far_fill,
                                .copy = far_copy,
                                .relu = far_relu,
                                .relu_backward = far_relu_backward,
                                .sum = far_sum,
                                .matmul = far_matmul,
                                .cross_entropy = far_cross_entropy,
                                .cross_entropy_backward = far_cross_entropy_backward,
                                .step = far_step};
static const tt__kernels i64 = {.copy = far_copy_i64, .find_outside = far_find_outside};

const tt__kernels *const far_kernels[TT__DTYPES] = {[TT_F32] = &f32, [TT_I64] = &i64};
