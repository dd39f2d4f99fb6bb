/* Copies between layouts and element types, comparison. */
#include "base/error.h"
#include "tensor/iter.h"
#include "tensor/tensor.h"

#include <string.h>

static tt__iter iterate2(const tt_tensor *a, const tt_tensor *b) {
    void *const p[] = {a->data, b->data};
    const int64_t *const stride[] = {a->stride, b->stride};
    const size_t size[] = {tt_dtype_size(a->dtype), tt_dtype_size(b->dtype)};
    return tt__iter_begin(&a->shape, 2, p, stride, size);
}

/* n elements of `size` bytes; steps in elements. */
static void copy_row(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n, size_t size) {
    if (dst_step == 1 && src_step == 1) {
        memmove(dst, src, (size_t)n * size);
        return;
    }
#define COPY_AS(type)               \
    for (int64_t i = 0; i < n; i++) \
    ((type *)dst)[i * dst_step] = ((const type *)src)[i * src_step]
    if (size == 4)
        COPY_AS(uint32_t);
    else if (size == 8)
        COPY_AS(uint64_t);
    else
        COPY_AS(uint8_t);
#undef COPY_AS
}

void tt__copy(tt_tensor *dst, const tt_tensor *src) {
    size_t size = tt_dtype_size(dst->dtype);
    for (tt__iter it = iterate2(dst, src); it.more; tt__iter_next(&it))
        copy_row(it.p[0], it.step[0], it.p[1], it.step[1], it.n, size);
}

void tt__accumulate(tt_tensor *dst, const tt_tensor *src) {
    for (tt__iter it = iterate2(dst, src); it.more; tt__iter_next(&it)) {
        if (dst->dtype == TT_F32)
            for (int64_t i = 0; i < it.n; i++)
                ((float *)it.p[0])[i * it.step[0]] += ((const float *)it.p[1])[i * it.step[1]];
        else
            for (int64_t i = 0; i < it.n; i++)
                ((double *)it.p[0])[i * it.step[0]] += ((const double *)it.p[1])[i * it.step[1]];
    }
}

tt_tensor *tt__clone(const char *who, const tt_tensor *x) {
    tt_tensor *y = tt__tensor_new(who, x->shape, x->dtype);
    if (y)
        tt__copy(y, x);
    return y;
}

double tt__load_f64(tt_dtype dtype, const void *p) {
    switch (dtype) {
    case TT_F32:
        return *(const float *)p;
    case TT_F64:
        return *(const double *)p;
    case TT_I32:
        return *(const int32_t *)p;
    case TT_I64:
        return (double)*(const int64_t *)p;
    case TT_U8:
        return *(const uint8_t *)p;
    default: /* no tensor has another type */
        return 0;
    }
}

static int64_t load_i64(tt_dtype dtype, const void *p) {
    switch (dtype) {
    case TT_I32:
        return *(const int32_t *)p;
    case TT_I64:
        return *(const int64_t *)p;
    case TT_U8:
        return *(const uint8_t *)p;
    default: { /* out of range or NaN: undefined in C; the ends of the range and 0 here */
        double v = tt__load_f64(dtype, p);
        return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : v != v ? 0 : (int64_t)v;
    }
    }
}

/* One element; integers pass through int64 (and wrap into narrower ones), the rest through double. */
static void convert(tt_dtype to, void *out, tt_dtype from, const void *in) {
    switch (to) {
    case TT_F32:
        *(float *)out = tt__is_float(from) ? (float)tt__load_f64(from, in) : (float)load_i64(from, in);
        break;
    case TT_F64:
        *(double *)out = tt__load_f64(from, in);
        break;
    case TT_I32:
        *(int32_t *)out = (int32_t)load_i64(from, in);
        break;
    case TT_I64:
        *(int64_t *)out = load_i64(from, in);
        break;
    case TT_U8:
        *(uint8_t *)out = (uint8_t)load_i64(from, in);
        break;
    default: /* no tensor has another type */
        break;
    }
}

tt_tensor *tt__to(const char *who, const tt_tensor *x, tt_dtype dtype) {
    if (dtype == x->dtype)
        return tt__clone(who, x);
    tt_tensor *y = tt__tensor_new(who, x->shape, dtype);
    if (!y)
        return NULL;
    int64_t to = (int64_t)tt_dtype_size(dtype), from = (int64_t)tt_dtype_size(x->dtype);
    for (tt__iter it = iterate2(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            convert(dtype, it.p[0] + i * it.step[0] * to, x->dtype, it.p[1] + i * it.step[1] * from);
    return y;
}

static bool same_elements(const tt_tensor *a, const tt_tensor *b) {
    return a->data == b->data && !memcmp(a->stride, b->stride, (size_t)a->shape.ndim * sizeof *a->stride);
}

/* What is written may be what is still to be read: by way of a copy. */
static tt_status copy_within(tt_tensor *dst, const tt_tensor *src) {
    if (same_elements(dst, src))
        return TT_OK;
    tt_tensor *before = tt__clone("tt_copy", src);
    if (!before)
        return tt_last_status();
    tt__copy(dst, before);
    if (before->owner == TT__OWNER_CALLER)
        tt_tensor_free(before);
    return TT_OK;
}

tt_status tt_copy(tt_tensor *dst, const tt_tensor *src) {
    if (!dst || !src)
        return tt__tensor_first_error("tt_copy");
    if (dst->dtype != src->dtype)
        return tt__fail(TT_ERR_DTYPE, "tt_copy: expected one dtype, got dst %s, src %s", TT__DESCRIBE(dst),
                        TT__DESCRIBE(src));
    if (!tt__shape_equal(&dst->shape, &src->shape))
        return tt__fail(TT_ERR_SHAPE, "tt_copy: expected one shape, got dst %s, src %s", TT__DESCRIBE(dst),
                        TT__DESCRIBE(src));
    return dst->storage == src->storage ? copy_within(dst, src) : (tt__copy(dst, src), TT_OK);
}

bool tt_equal(const tt_tensor *a, const tt_tensor *b) {
    if (!a || !b || a->dtype != b->dtype || !tt__shape_equal(&a->shape, &b->shape))
        return a == b;
    size_t size = tt_dtype_size(a->dtype);
    for (tt__iter it = iterate2(a, b); it.more; tt__iter_next(&it)) {
        if (it.step[0] == 1 && it.step[1] == 1) {
            if (memcmp(it.p[0], it.p[1], (size_t)it.n * size))
                return false;
            continue;
        }
        for (int64_t i = 0; i < it.n; i++)
            if (memcmp(it.p[0] + (size_t)(i * it.step[0]) * size, it.p[1] + (size_t)(i * it.step[1]) * size, size))
                return false;
    }
    return true;
}
