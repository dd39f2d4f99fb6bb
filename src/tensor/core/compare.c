/* Equality of bits, compared on the host; tensors of other devices are copied there. */
#include "tensor/ops/ops.h"
#include "tensor/shape/iter.h"

#include <string.h>

static bool rows_equal(const tt__iter *it, size_t size) {
    if (it->step[0] == 1 && it->step[1] == 1)
        return !memcmp(it->p[0], it->p[1], (size_t)it->n * size);
    for (int64_t i = 0; i < it->n; i++)
        if (memcmp(it->p[0] + (size_t)(i * it->step[0]) * size, it->p[1] + (size_t)(i * it->step[1]) * size, size))
            return false;
    return true;
}

static bool equal_here(const tt_tensor *a, const tt_tensor *b) {
    for (tt__iter it = TT__ITER_OVER(a, b); it.more; tt__iter_next(&it))
        if (!rows_equal(&it, tt_dtype_size(a->dtype)))
            return false;
    return true;
}

static tt_tensor *brought_here(const tt_tensor *x) {
    return tt__device_is_host(tt__device_of(x)) ? (tt_tensor *)x : tt__to_device("tt_equal", x, &tt__cpu_device);
}

static bool both_live(const tt_tensor *a, const tt_tensor *b) {
    return (!a || tt__tensor_check("tt_equal", a)) && (!b || tt__tensor_check("tt_equal", b));
}

bool tt_equal(const tt_tensor *a, const tt_tensor *b) {
    if (!both_live(a, b))
        return false;
    if (!a || !b || a->dtype != b->dtype || !tt__shape_equal(&a->shape, &b->shape))
        return a == b;
    tt_tensor *x = brought_here(a), *y = x ? brought_here(b) : NULL;
    bool equal = x && y && equal_here(x, y);
    tt__contiguous_done(y, b);
    tt__contiguous_done(x, a);
    return equal;
}
