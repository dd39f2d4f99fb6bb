/* For kernels that want contiguous tensors: inputs are copied where they are not, outputs go by way of a copy. */
#ifndef TT_TENSOR_CONTIGUOUS_H
#define TT_TENSOR_CONTIGUOUS_H

#include "tensor/ops.h"

enum { TT__OPERANDS = 4 };

/* `y` is written, `in[0..n)` are read (NULLs are skipped): the same tensors, or contiguous stand-ins. */
typedef struct tt__operands {
    const char *who;
    int n;
    tt_tensor *y, *given_y;
    tt_tensor *in[TT__OPERANDS];
    const tt_tensor *given[TT__OPERANDS];
    tt_status status; /* not TT_OK: no memory, or devices differ; then run no kernel */
} tt__operands;

tt__operands tt__operands_begin(const char *who, tt_tensor *y, int n, const tt_tensor *const *in);

/* Copy the result to y if it went to a stand-in, and free the stand-ins; `status`: the kernel's. Returns the first
 * failure. */
tt_status tt__operands_end(tt__operands *o, tt_status status);

#define TT__OPERANDS(who, y, ...)                                                                       \
    tt__operands_begin(who, y, (int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                       (const tt_tensor *[]){__VA_ARGS__})

#endif
