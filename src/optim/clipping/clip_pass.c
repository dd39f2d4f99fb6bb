#include "optim/clipping/clip_pass.h"

#include "tensor/core/tensor.h"
#include "tensor/device/parallel.h"

#include <math.h>

const tt__clip_loops *tt__clip_loops_of(tt_dtype dtype) {
    const tt__clip_kernels *kernels = TT__LEVEL_CHOOSE(tt__clip_kernels_of_types);
    return dtype == TT_F32 ? &kernels->f32 : dtype == TT_F64 ? &kernels->f64 : NULL;
}

/* Blocks that are measured before their results are added up. */
enum { CLIP_ROUND = 64 };

typedef struct measure_pass {
    const tt__clip_loops *loops;
    char *data;
    size_t size;  /* of an element */
    double value; /* norm_type */
    double part[CLIP_ROUND];
} measure_pass;

static double measure_range(const measure_pass *pass, int64_t begin, int64_t n) {
    const void *x = pass->data + (size_t)begin * pass->size;
    if (isinf(pass->value))
        return pass->loops->largest(x, n);
    return pass->value == 2 ? pass->loops->sum_of_squares(x, n) : pass->loops->sum_of_powers(x, n, pass->value);
}

static void measure_block(void *user, int64_t begin, int64_t end) {
    measure_pass *pass = user;
    pass->part[begin / TT__CLIP_BLOCK] = measure_range(pass, begin, end - begin);
}

/* Join two measures: the larger one, or the sum. */
static double joined(double norm_type, double a, double b) {
    return !isinf(norm_type) ? a + b : b > a || b != b ? b : a;
}

double tt__clip_term(const tt_tensor *x, double norm_type) {
    measure_pass pass = {.loops = tt__clip_loops_of(x->dtype), .size = tt_dtype_size(x->dtype), .value = norm_type};
    const int64_t round = (int64_t)CLIP_ROUND * TT__CLIP_BLOCK;
    double all = 0;
    for (int64_t at = 0; at < x->numel; at += round) {
        const int64_t n = x->numel - at < round ? x->numel - at : round;
        pass.data = (char *)x->data + (size_t)at * pass.size;
        tt__parallel_for(n, TT__CLIP_BLOCK, measure_block, &pass);
        for (int64_t b = 0; b * TT__CLIP_BLOCK < n; b++)
            all = joined(norm_type, all, pass.part[b]);
    }
    return all;
}
