/* Recurrent cells in f32: one sequence, forward and backward. */
#include "tensor/cpu/levels.h"
#include "tensor/cpu/math_f32.h"

#include <stddef.h>

static inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_any_f32(-x)); }

static void loop_tanh_cell(int64_t H, const tt__cell_row *r) {
    const float *restrict x = r->x, *bias = r->bias, *hidden = r->gates;
    float *y = r->y; /* may be the same array as `hidden` */
    for (int64_t j = 0; j < H; j++)
        y[j] = tanh_f32(x[j] + (hidden[j] + bias[j]));
}

static void loop_relu_cell(int64_t H, const tt__cell_row *r) {
    const float *restrict x = r->x, *bias = r->bias, *hidden = r->gates;
    float *y = r->y;
    for (int64_t j = 0; j < H; j++) {
        float a = x[j] + (hidden[j] + bias[j]);
        y[j] = a < 0 ? 0 : a;
    }
}

static void loop_lstm_cell(int64_t H, const tt__cell_row *r) {
    const float *restrict x = r->x, *restrict bias = r->bias, *restrict c = r->c;
    float *restrict gates = r->gates, *restrict c_next = r->c_next, *restrict y = r->y;
    for (int64_t j = 0; j < H; j++) {
        float i = sigmoid_f32(x[j] + (gates[j] + bias[j]));
        float f = sigmoid_f32(x[H + j] + (gates[H + j] + bias[H + j]));
        float g = tanh_f32(x[2 * H + j] + (gates[2 * H + j] + bias[2 * H + j]));
        float o = sigmoid_f32(x[3 * H + j] + (gates[3 * H + j] + bias[3 * H + j]));
        float next = f * c[j] + i * g;
        gates[j] = i;
        gates[H + j] = f;
        gates[2 * H + j] = g;
        gates[3 * H + j] = o;
        c_next[j] = next;
        y[j] = o * tanh_f32(next);
    }
}

static void loop_gru_cell(int64_t H, const tt__cell_row *row) {
    const float *restrict x = row->x, *restrict bias = row->bias, *restrict h = row->h;
    float *restrict gates = row->gates, *restrict y = row->y;
    for (int64_t j = 0; j < H; j++) {
        float r = sigmoid_f32(x[j] + (gates[j] + bias[j]));
        float z = sigmoid_f32(x[H + j] + (gates[H + j] + bias[H + j]));
        float hidden = gates[2 * H + j] + bias[2 * H + j];
        float n = tanh_f32(x[2 * H + j] + r * hidden);
        gates[j] = r;
        gates[H + j] = z;
        gates[2 * H + j] = n;
        gates[3 * H + j] = hidden;
        y[j] = n + z * (h[j] - n);
    }
}

static void loop_tanh_grad(int64_t H, const tt__cell_grad_row *r) {
    const float *restrict y = r->y, *restrict g = r->g, *restrict dh = r->dh;
    float *restrict dx = r->dx;
    for (int64_t j = 0; j < H; j++)
        dx[j] = (g[j] + dh[j]) * (1.0f - y[j] * y[j]);
}

static void loop_relu_grad(int64_t H, const tt__cell_grad_row *r) {
    const float *restrict y = r->y, *restrict g = r->g, *restrict dh = r->dh;
    float *restrict dx = r->dx;
    for (int64_t j = 0; j < H; j++)
        dx[j] = y[j] <= 0 ? 0 : g[j] + dh[j];
}

static void loop_lstm_grad(int64_t H, const tt__cell_grad_row *r) {
    const float *restrict gates = r->gates, *restrict c = r->c, *restrict c_next = r->c_next;
    const float *restrict from = r->g, *restrict dh = r->dh;
    float *restrict dx = r->dx, *restrict dc = r->dc;
    for (int64_t j = 0; j < H; j++) {
        float i = gates[j], f = gates[H + j], g = gates[2 * H + j], o = gates[3 * H + j];
        float t = tanh_f32(c_next[j]), d = from[j] + dh[j], e = dc[j] + d * o * (1.0f - t * t);
        dx[j] = e * g * (i * (1.0f - i));
        dx[H + j] = e * c[j] * (f * (1.0f - f));
        dx[2 * H + j] = e * i * (1.0f - g * g);
        dx[3 * H + j] = d * t * (o * (1.0f - o));
        dc[j] = e * f;
    }
}

static void loop_gru_grad(int64_t H, const tt__cell_grad_row *row) {
    const float *restrict gates = row->gates, *restrict h = row->h, *restrict from = row->g;
    float *restrict dx = row->dx, *restrict dh = row->dh, *restrict dhidden = row->dhidden;
    for (int64_t j = 0; j < H; j++) {
        float r = gates[j], z = gates[H + j], n = gates[2 * H + j], hidden = gates[3 * H + j];
        float d = from[j] + dh[j], dn = d * (1.0f - z) * (1.0f - n * n);
        float dr = dn * hidden * (r * (1.0f - r)), dz = d * (h[j] - n) * (z * (1.0f - z));
        dx[j] = dr;
        dx[H + j] = dz;
        dx[2 * H + j] = dn;
        dhidden[j] = dr;
        dhidden[H + j] = dz;
        dhidden[2 * H + j] = dn * r;
        dh[j] = d * z;
    }
}

const tt__rnn_kernels TT__LEVEL_NAME(tt__rnn_kernels) = {
    .cell = {loop_tanh_cell, loop_relu_cell, loop_lstm_cell, loop_gru_cell},
    .grad = {loop_tanh_grad, loop_relu_grad, loop_lstm_grad, loop_gru_grad},
};
