/* A module whose gradients are what the test says, for tests of what averages them: its forward is the sum over its
 * parameters of parameter * gradient. */
#ifndef TESTS_SUPPORT_GIVEN_GRADIENTS_H
#define TESTS_SUPPORT_GIVEN_GRADIENTS_H

#include <tutti/tutti.h>

#include "support/ranks.h"

enum { PARAMS = 5, MOST_RANKS = 4, LARGEST = 40 * 30 };
static const int64_t shapes[PARAMS][2] = {{40, 30}, {30, 0}, {24, 32}, {40, 30}, {3, 2}};

static inline int64_t elements(int p) { return shapes[p][0] * (shapes[p][1] ? shapes[p][1] : 1); }

typedef struct drawn_step {
    float gradients[PARAMS][LARGEST];
} drawn_step;

/* Numbers like gradients: most of them small. */
static inline float number(uint32_t seed) {
    uint32_t x = seed * 2654435761u + 12345;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    float u = (float)(x >> 8) * 0x1p-24f - 0.5f;
    return u * u * u * 8;
}

static inline void draw_step(drawn_step *s, int rank, int step) {
    for (int p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < elements(p); k++)
            s->gradients[p][k] = number((uint32_t)(((step * 7 + rank) * PARAMS + p) * LARGEST + k));
}

static inline tt_tensor *given_forward(tt_module *self, tt_tensor *x) {
    const drawn_step *s = tt_module_user(self);
    tt_tensor *sum = tt_sum(x);
    const tt_named_tensors *list = tt_module_parameters(self);
    for (int p = 0; p < PARAMS; p++) {
        tt_tensor *g = tt_from_data(s->gradients[p], tt_tensor_shape(list->tensors[p]), TT_F32);
        sum = tt_add(sum, tt_sum(tt_mul(list->tensors[p], g)));
    }
    return sum;
}

static inline tt_module *given_module(drawn_step *s) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Given", .forward = given_forward);
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e"};
    tt_module *m = tt_module_new(&cls, s);
    for (int p = 0; p < PARAMS; p++)
        CHECK_OK(tt_module_register_parameter(
            m, names[p],
            tt_zeros(shapes[p][1] ? TT_SHAPE(shapes[p][0], shapes[p][1]) : TT_SHAPE(shapes[p][0]), TT_F32)));
    return m;
}

/* A pass with these gradients. */
static inline tt_status pass(tt_module *ddp) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *list = tt_module_parameters(ddp);
    for (int p = 0; p < PARAMS; p++)
        tt_zero_grad(list->tensors[p]);
    return tt_backward(tt_module_forward(ddp, tt_zeros(TT_SHAPE(1), TT_F32)));
}

static inline const float *result(tt_module *ddp, int p) {
    return tt_tensor_f32(tt_grad(tt_module_parameters(ddp)->tensors[p]));
}

#endif
