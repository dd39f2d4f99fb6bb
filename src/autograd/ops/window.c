#include "autograd/ops/window.h"

#include <inttypes.h>

bool tt__pair_get(const char *who, const tt__pair *pair, int64_t *out) {
    bool two = pair->hw[0] != 0 || pair->hw[1] != 0;
    if (two && pair->both != 0) {
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected .%s or .%s_hw, got both", who, pair->name, pair->name);
        return false;
    }
    for (int d = 0; d < 2; d++) {
        out[d] = two ? pair->hw[d] : pair->both ? pair->both : pair->unset;
        if (out[d] < pair->least || out[d] > INT32_MAX) {
            tt__tensor_fail(TT_ERR_INVALID, "%s: expected %s from %" PRId64 " to %d, got %" PRId64, who, pair->name,
                            pair->least, INT32_MAX, out[d]);
            return false;
        }
    }
    return true;
}

int64_t tt__window_count(int64_t size, int64_t window, int64_t stride, int64_t padding, bool up) {
    int64_t room = size + 2 * padding - window;
    if (room < 0 && (!up || room + stride <= 0))
        return 0;
    int64_t count = (room + (up ? stride - 1 : 0)) / stride + 1;
    return up && (count - 1) * stride >= size + padding ? count - 1 : count; /* the last one would begin outside */
}

bool tt__check_image(const char *who, const tt_tensor *x) {
    const int64_t *size = x->shape.dim;
    if (x->shape.ndim == 4 && size[1] > 0 && size[2] > 0 && size[3] > 0)
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C, H, W) with C, H and W at least 1, got x %s", who,
                    TT__DESCRIBE(x));
    return false;
}

/* Has each window an element of the image along dimension d, not padding alone? */
static bool windows_reach(const tt__pooling *pool, int d, int64_t count, int64_t size) {
    int64_t step = pool->window.dilation[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t origin = i * pool->window.stride[d] - pool->window.padding[d];
        int64_t first = origin < 0 ? (-origin + step - 1) / step : 0;
        if (first >= pool->size[d] || origin + first * step >= size)
            return false;
    }
    return true;
}

bool tt__pooling_get(const char *who, const tt_tensor *x, const tt__pair options[4], bool up, tt__pooling *pool,
                     tt_shape *pooled) {
    tt__window *win = &pool->window;
    if (!tt__pair_get(who, &options[0], pool->size) || !tt__pair_get(who, &options[1], win->stride) ||
        !tt__pair_get(who, &options[2], win->padding) || !tt__pair_get(who, &options[3], win->dilation))
        return false;
    *pooled = x->shape;
    for (int d = 0; d < 2; d++) {
        int64_t size = x->shape.dim[2 + d], reach = (pool->size[d] - 1) * win->dilation[d] + 1;
        win->stride[d] = win->stride[d] ? win->stride[d] : pool->size[d];
        pooled->dim[2 + d] = tt__window_count(size, reach, win->stride[d], win->padding[d], up);
        if (win->padding[d] > pool->size[d] / 2) {
            tt__tensor_fail(TT_ERR_INVALID,
                            "%s: expected padding of at most half of the kernel's %" PRId64 ", got %" PRId64, who,
                            pool->size[d], win->padding[d]);
            return false;
        }
        if (pooled->dim[2 + d] < 1 || !windows_reach(pool, d, pooled->dim[2 + d], size)) {
            tt__tensor_fail(TT_ERR_SHAPE, "%s: a window of %" PRId64 " does not fit x %s with padding %" PRId64, who,
                            reach, TT__DESCRIBE(x), win->padding[d]);
            return false;
        }
    }
    return true;
}
