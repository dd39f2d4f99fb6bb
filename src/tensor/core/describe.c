/* A tensor in words, for errors of all layers. */
#include "tensor/core/tensor.h"

#include <stdio.h>

const char *tt_tensor_describe(const tt_tensor *x, char *out, size_t size) {
    if (!out || !size)
        return out;
    int n = snprintf(out, size, "%s", x ? tt_dtype_name(x->dtype) : "NULL");
    if (x && (size_t)n + 1 < size) {
        out[n++] = ' ';
        tt__shape_text(&x->shape, out + n, size - (size_t)n);
    }
    return out;
}
