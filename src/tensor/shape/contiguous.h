/* For kernels that want contiguous tensors: inputs are copied where they are not, outputs go by way of a copy. */
#ifndef TT_TENSOR_CONTIGUOUS_H
#define TT_TENSOR_CONTIGUOUS_H

#include "tensor/ops/ops.h"

enum { TT__OPERANDS = 4 };

/* `y` is written, `in[0..n)` are read (NULLs are skipped): the same tensors, or contiguous stand-ins. */
typedef struct tt__operands {
    const char *who;
    tt__any_kernel kernel; /* of y's device and element type */
    int n;
    tt_tensor *y, *given_y;
    tt_tensor *in[TT__OPERANDS];
    const tt_tensor *given[TT__OPERANDS];
    tt_status status; /* not TT_OK: no kernel, no memory, or devices differ; then run none */
} tt__operands;

/* For the kernel that stands at `offset` in tables, by `name`. */
tt__operands tt__operands_begin(const char *who, size_t offset, const char *name, tt_tensor *y, int n,
                                const tt_tensor *const *in);

/* Copy the result to y if it went to a stand-in, and free the stand-ins; `status`: the kernel's. Returns the first
 * failure. */
tt_status tt__operands_end(tt__operands *o, tt_status status);

/* tt__operands o = TT__OPERANDS(who, nll_loss, y, x, t);
 * return TT__RUN(o, nll_loss, o.y, o.in[0], o.in[1]); */
#define TT__OPERANDS(who, kernel, y, ...)                                                       \
    tt__operands_begin(who, offsetof(tt__kernels, kernel), #kernel, y,                          \
                       (int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                       (const tt_tensor *[]){__VA_ARGS__})
#define TT__RUN(o, name, ...) \
    tt__operands_end(&(o), (o).status ? (o).status : ((tt__kernel_##name)(o).kernel)(__VA_ARGS__))

#endif
