#include "tensor/shape/memory_format.h"

void tt__format_strides(const tt_shape *shape, tt_memory_format format, int64_t *stride) {
    /* wrap for a shape that overflows; making such a tensor fails */
    uint64_t C = (uint64_t)shape->dim[1], H = (uint64_t)shape->dim[2], W = (uint64_t)shape->dim[3];
    uint64_t last[] = {H * W * C, 1, W * C, C}, first[] = {C * H * W, H * W, W, 1};
    for (int d = 0; d < 4; d++)
        stride[d] = (int64_t)(format == TT_CHANNELS_LAST ? last[d] : first[d]);
}

bool tt__is_channels_last(const tt_tensor *x) {
    static const int inner_first[] = {1, 3, 2, 0};
    int64_t least = 0;
    if (x->shape.ndim != 4 || x->stride[1] == 0)
        return false;
    for (int i = 0; i < 4; i++) {
        int d = inner_first[i];
        int64_t size = x->shape.dim[d];
        if (size == 0 || x->stride[d] < least || (d == 0 && least == x->stride[1]))
            return false;
        least = x->stride[d] * size;
    }
    return true;
}

bool tt__lies_as(const tt_tensor *x, tt_memory_format format) {
    int64_t stride[4];
    tt__format_strides(&x->shape, format, stride);
    for (int d = 0; d < 4; d++)
        if (x->shape.dim[d] != 1 && x->stride[d] != stride[d])
            return false;
    return true;
}

tt_memory_format tt__common_format(const tt_tensor *a, const tt_tensor *b) {
    if (tt__lies_as(a, TT_CONTIGUOUS) && tt__lies_as(b, TT_CONTIGUOUS))
        return TT_CONTIGUOUS;
    return tt__is_channels_last(a) || tt__is_channels_last(b) ? TT_CHANNELS_LAST : TT_CONTIGUOUS;
}
