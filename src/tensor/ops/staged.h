/* Operands in the layout that a kernel takes. Each is the tensor itself if it has that layout, else a stand-in: inputs
 * are copied to theirs, results copied from theirs. */
#ifndef TT_TENSOR_STAGED_H
#define TT_TENSOR_STAGED_H

#include "tensor/ops/ops.h"

/* ---- images (N,C,H,W): contiguous or channels last (memory_format.h); a result has its input's format
 *
 *   tt__staged s = {.who = who};
 *   const tt_tensor *in = tt__stage_image(&s, x, format);
 *   tt_tensor *out = tt__stage_result(&s, y, format);
 *   return tt__staged_end(&s, s.failed ? tt_last_status() : run(out, in)); */

enum { TT__STAGED_MAX = 8 };

typedef struct tt__staged {
    const char *who;
    bool failed; /* one of them could not be made; the error is recorded */
    int n;
    struct {
        const tt_tensor *given;
        tt_tensor *used;
        tt_tensor *written; /* `given`, if it is a result */
    } operand[TT__STAGED_MAX];
} tt__staged;

/* Return x or its stand-in: in this memory format / contiguous / to be written (in the format, or contiguous if it has
 * not four dimensions). NULL for NULL, and after a failure. */
const tt_tensor *tt__stage_image(tt__staged *s, const tt_tensor *x, tt_memory_format format);
const tt_tensor *tt__stage_plain(tt__staged *s, const tt_tensor *x);
tt_tensor *tt__stage_result(tt__staged *s, tt_tensor *y, tt_memory_format format);

/* Copy the results, if `status` is TT_OK, and free the stand-ins. Returns the first failure. */
tt_status tt__staged_end(tt__staged *s, tt_status status);

/* ---- contiguous operands
 *
 *   tt__operands o = TT__OPERANDS(who, nll_loss, y, x, t);
 *   return TT__RUN(o, nll_loss, o.y, o.in[0], o.in[1]); */

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

/* Find the kernel `name`, which stands at `offset` in tables, and bring the operands to it. */
tt__operands tt__operands_begin(const char *who, size_t offset, const char *name, tt_tensor *y, int n,
                                const tt_tensor *const *in);

/* Copy the result to y if it went to a stand-in, and free the stand-ins; `status`: the kernel's. Returns the first
 * failure. */
tt_status tt__operands_end(tt__operands *o, tt_status status);

#define TT__OPERANDS(who, kernel, y, ...)                                                       \
    tt__operands_begin(who, offsetof(tt__kernels, kernel), #kernel, y,                          \
                       (int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                       (const tt_tensor *[]){__VA_ARGS__})
#define TT__RUN(o, name, ...) \
    tt__operands_end(&(o), (o).status ? (o).status : ((tt__kernel_##name)(o).kernel)(__VA_ARGS__))

#endif
