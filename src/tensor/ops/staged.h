/* For kernels on images: operands in the format that the kernel takes. Each is the tensor itself if it has that format,
 * else a stand-in: inputs are copied to theirs, results copied from theirs. Images are (N,C,H,W), contiguous or
 * channels last (memory_format.h); no kernel sees another layout, and a result has its input's.
 *
 *   tt__staged s = {.who = who};
 *   const tt_tensor *in = tt__stage_image(&s, x, format);
 *   tt_tensor *out = tt__stage_result(&s, y, format);
 *   return tt__staged_end(&s, s.failed ? tt_last_status() : run(out, in)); */
#ifndef TT_TENSOR_STAGED_H
#define TT_TENSOR_STAGED_H

#include "tensor/ops/ops.h"

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

/* Return what stands for x: in this memory format, contiguous, or as a result (contiguous where it has not four
 * dimensions). NULL for NULL, and after a failure. */
const tt_tensor *tt__stage_image(tt__staged *s, const tt_tensor *x, tt_memory_format format);
const tt_tensor *tt__stage_plain(tt__staged *s, const tt_tensor *x);
tt_tensor *tt__stage_result(tt__staged *s, tt_tensor *y, tt_memory_format format);

/* Copy the results, if `status` is TT_OK, and free the stand-ins. Returns the first failure. */
tt_status tt__staged_end(tt__staged *s, tt_status status);

#endif
