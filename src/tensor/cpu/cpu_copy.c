#include "tensor/cpu/cpu_copy.h"

#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

#include <math.h>
#include <string.h>

/* Copy n elements of `size` bytes; steps in elements. */
static void copy_row(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n, size_t size) {
    if (dst_step == 1 && src_step == 1) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
#define COPY_AS(type)               \
    for (int64_t i = 0; i < n; i++) \
    ((type *)(void *)dst)[i * dst_step] = ((const type *)(const void *)src)[i * src_step]
    if (size == 4)
        COPY_AS(uint32_t);
    else if (size == 8)
        COPY_AS(uint64_t);
    else if (size == 2)
        COPY_AS(uint16_t);
    else
        COPY_AS(uint8_t);
#undef COPY_AS
}

tt_status tt__cpu_copy(tt_tensor *y, const tt_tensor *x) {
    size_t size = tt_dtype_size(y->dtype);
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        copy_row(it.p[0], it.step[0], it.p[1], it.step[1], it.n, size);
    return TT_OK;
}

/* ---- y = value */

static void clear_bytes(void *user, int64_t begin, int64_t end) {
    memset((char *)user + begin, 0, (size_t)(end - begin));
}

/* Zeros, of which gradients are full, are bytes of 0 in every element type. */
tt_status tt__cpu_fill(tt_tensor *y, double value) {
    enum { BLOCK = 1 << 20 };
    if (value != 0 || signbit(value) || !TT__IS_FLAT(y))
        return tt__reference_kernels[y->dtype]->fill(y, value);
    tt__parallel_for(y->numel * (int64_t)tt_dtype_size(y->dtype), BLOCK, clear_bytes, y->data);
    return TT_OK;
}
