/* Tensors of random numbers that a seed alone decides. */
#ifndef TESTS_SUPPORT_DRAWN_H
#define TESTS_SUPPORT_DRAWN_H

#include <tutti/autograd.h>

static inline tt_tensor *drawn(tt_shape shape, uint64_t seed) {
    tt_generator *g = tt_generator_new(seed);
    tt_tensor *x = tt_randn(shape, g);
    tt_generator_free(g);
    return x;
}

static inline tt_tensor *drawn_leaf(tt_shape shape, uint64_t seed) {
    return tt_requires_grad_(drawn(shape, seed), true);
}

#endif
