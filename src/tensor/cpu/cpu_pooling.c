/* Max pooling. Channels last, a window's taps are rows of C channels, taken one after the other; otherwise planes are
 * walked element by element. Threads share images, or planes. */
#include "tensor/cpu/cpu_kernels.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/memory_format.h"

#include <string.h>

/* Planes that one thread takes at a time. */
enum { PLANES = 8 };

typedef struct pool_call {
    const tt__pooling *pool;
    const tt_shape *image, *pooled; /* (N,C,H,W), (N,C,P,Q) */
    const float *x, *g;
    float *y, *dx;
    int32_t *at;
} pool_call;

/* Of window number `at`, along dimension d: the taps [first, end) that lie inside of the image, and where tap 0
 * lies. */
typedef struct taps {
    int64_t origin, first, end;
} taps;

static taps taps_of(const pool_call *k, int d, int64_t at) {
    const tt__window *win = &k->pool->window;
    int64_t step = win->dilation[d], size = k->image->dim[2 + d];
    taps t = {.origin = at * win->stride[d] - win->padding[d], .end = k->pool->size[d]};
    if (t.origin < 0)
        t.first = (-t.origin + step - 1) / step;
    while (t.end > t.first && t.origin + (t.end - 1) * step >= size)
        t.end--;
    return t;
}

/* ---- channels last */

static void max_window_last(const pool_call *k, const float *x, int64_t p, int64_t q, float *y, int32_t *at) {
    const int64_t *step = k->pool->window.dilation, C = k->image->dim[1], W = k->image->dim[3];
    const tt__pooling_kernels *loops = tt__pooling_loops();
    taps rows = taps_of(k, 0, p), columns = taps_of(k, 1, q);
    for (int64_t r = rows.first; r < rows.end; r++)
        for (int64_t s = columns.first; s < columns.end; s++) {
            int64_t place = (rows.origin + r * step[0]) * W + columns.origin + s * step[1];
            bool first = r == rows.first && s == columns.first;
            (first ? loops->max_first : loops->max_next)(C, x + place * C, (int32_t)place, y, at);
        }
}

static void max_images_last(void *user, int64_t begin, int64_t end) {
    const pool_call *k = user;
    const int64_t *in = k->image->dim, *out = k->pooled->dim;
    for (int64_t n = begin; n < end; n++)
        for (int64_t p = 0; p < out[2]; p++)
            for (int64_t q = 0; q < out[3]; q++) {
                int64_t to = ((n * out[2] + p) * out[3] + q) * out[1];
                max_window_last(k, k->x + n * in[1] * in[2] * in[3], p, q, k->y + to, k->at + to);
            }
}

static void give_window_last(const pool_call *k, float *dx, int64_t p, int64_t q, const float *g, const int32_t *at) {
    const int64_t *step = k->pool->window.dilation, C = k->image->dim[1], W = k->image->dim[3];
    taps rows = taps_of(k, 0, p), columns = taps_of(k, 1, q);
    for (int64_t r = rows.first; r < rows.end; r++)
        for (int64_t s = columns.first; s < columns.end; s++) {
            int64_t place = (rows.origin + r * step[0]) * W + columns.origin + s * step[1];
            tt__pooling_loops()->max_give(C, at, (int32_t)place, g, dx + place * C);
        }
}

static void give_images_last(void *user, int64_t begin, int64_t end) {
    const pool_call *k = user;
    const int64_t *in = k->image->dim, *out = k->pooled->dim;
    for (int64_t n = begin; n < end; n++) {
        int64_t size = in[1] * in[2] * in[3];
        float *dx = k->dx + n * size;
        memset(dx, 0, (size_t)size * sizeof *dx);
        for (int64_t p = 0; p < out[2]; p++)
            for (int64_t q = 0; q < out[3]; q++) {
                int64_t from = ((n * out[2] + p) * out[3] + q) * out[1];
                give_window_last(k, dx, p, q, k->g + from, k->at + from);
            }
    }
}

/* ---- contiguous */

static int32_t max_in_window(const pool_call *k, const float *x, taps rows, int64_t q) {
    const int64_t *step = k->pool->window.dilation, W = k->image->dim[3];
    taps columns = taps_of(k, 1, q);
    int64_t best = -1;
    for (int64_t r = rows.first; r < rows.end; r++)
        for (int64_t s = columns.first; s < columns.end; s++) {
            int64_t place = (rows.origin + r * step[0]) * W + columns.origin + s * step[1];
            if (best < 0 || x[place] > x[best] || x[place] != x[place])
                best = place;
        }
    return (int32_t)best;
}

/* x: the plane; y, at: row p of its windows. */
static void max_row(const pool_call *k, const float *x, int64_t p, float *y, int32_t *at) {
    taps rows = taps_of(k, 0, p);
    for (int64_t q = 0; q < k->pooled->dim[3]; q++) {
        at[q] = max_in_window(k, x, rows, q);
        y[q] = x[at[q]];
    }
}

/* Is it pooling of 2 x 2 in steps of 2, where all windows lie inside of the image? */
static bool pools_pairs(const pool_call *k) {
    const tt__window *win = &k->pool->window;
    bool pairs = true;
    for (int d = 0; d < 2; d++)
        pairs = pairs && k->pool->size[d] == 2 && win->stride[d] == 2 && !win->padding[d] && win->dilation[d] == 1 &&
                2 * k->pooled->dim[2 + d] <= k->image->dim[2 + d];
    return pairs;
}

static void max_planes(void *user, int64_t begin, int64_t end) {
    const pool_call *k = user;
    int64_t P = k->pooled->dim[2], Q = k->pooled->dim[3], W = k->image->dim[3], size = k->image->dim[2] * W;
    bool pairs = pools_pairs(k);
    for (int64_t row = begin * P; row < end * P; row++) {
        const float *x = k->x + row / P * size;
        int64_t p = row % P, from = 2 * p * W;
        if (pairs)
            tt__pooling_loops()->max_pairs(Q, x + from, x + from + W, (int32_t)from, (int32_t)W, k->y + row * Q,
                                           k->at + row * Q);
        else
            max_row(k, x, p, k->y + row * Q, k->at + row * Q);
    }
}

static void give_planes(void *user, int64_t begin, int64_t end) {
    const pool_call *k = user;
    int64_t windows = k->pooled->dim[2] * k->pooled->dim[3], size = k->image->dim[2] * k->image->dim[3];
    for (int64_t plane = begin; plane < end; plane++) {
        float *dx = k->dx + plane * size;
        memset(dx, 0, (size_t)size * sizeof *dx);
        for (int64_t i = plane * windows; i < (plane + 1) * windows; i++)
            dx[k->at[i]] += k->g[i];
    }
}

/* ---- */

static void pool_run(pool_call *k, bool channels_last, void (*images)(void *, int64_t, int64_t),
                     void (*planes)(void *, int64_t, int64_t)) {
    if (channels_last)
        tt__parallel_for(k->image->dim[0], 1, images, k);
    else
        tt__parallel_for(k->image->dim[0] * k->image->dim[1], PLANES, planes, k);
}

tt_status tt__cpu_max_pool2d_f32(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool) {
    pool_call k = {pool, &x->shape, &y->shape, .x = x->data, .y = y->data, .at = at->data};
    bool last = !tt__lies_as(x, TT_CONTIGUOUS) || !tt__lies_as(y, TT_CONTIGUOUS);
    pool_run(&k, last, max_images_last, max_planes);
    return TT_OK;
}

tt_status tt__cpu_max_pool2d_backward_f32(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                          const tt__pooling *pool) {
    pool_call k = {pool, &dx->shape, &g->shape, .g = g->data, .dx = dx->data, .at = at->data};
    bool last = !tt__lies_as(dx, TT_CONTIGUOUS) || !tt__lies_as(g, TT_CONTIGUOUS);
    pool_run(&k, last, give_images_last, give_planes);
    return TT_OK;
}
