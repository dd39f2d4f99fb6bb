/* What operators share: checks of their inputs, matrices, destinations. */
#ifndef TT_AUTOGRAD_OPS_H
#define TT_AUTOGRAD_OPS_H

#include "autograd/node.h"
#include "tensor/cpu/gemm.h"

typedef struct tt__named {
    const char *name;
    const tt_tensor *x; /* NULL: left out */
} tt__named;

/* All f32 or all f64; else TT_ERR_DTYPE with all of them, and false. */
bool tt__check_floats(const char *who, int n, const tt__named *x);
#define TT__CHECK_FLOATS(who, ...) \
    tt__check_floats(who, (int)(sizeof((tt__named[]){__VA_ARGS__}) / sizeof(tt__named)), (tt__named[]){__VA_ARGS__})

/* x itself if contiguous, else a contiguous copy, to be given to tt__ops_done() with x. NULL and an error if memory is out. */
tt_tensor *tt__ops_contiguous(const char *who, tt_tensor *x);
void tt__ops_done(tt_tensor *copy, const tt_tensor *x);

/* x seen as a matrix: dimension 0 by dimension 1. */
tt__matrix tt__ops_matrix(const tt_tensor *x);

/* dst (contiguous) = src * factor, or dst += it; n elements. */
void tt__ops_scale(tt_dtype dtype, int64_t n, const void *src, double factor, tt__grad_to to);

#endif
