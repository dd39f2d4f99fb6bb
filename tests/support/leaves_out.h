/* Checks DDP with parameters on a device, in passes that leave parameters out and passes that average nothing. */
#ifndef TESTS_SUPPORT_LEAVES_OUT_H
#define TESTS_SUPPORT_LEAVES_OUT_H

#include "support/ranks.h"

#include <math.h>
#include <tutti/tutti.h>

/* Run backward of w x, for w (1, 1): the gradient of w is x. */
static inline void give_gradient(tt_module *layer, double x, const tt_device *device) {
    TT_AUTO_SCOPE;
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(layer, tt_to_device(tt_full(TT_SHAPE(1, 1), TT_F32, x), device)))));
}

/* The gradient of the layer's weight. NaN: it has none. */
static inline double gradient_of(tt_module *layer) {
    double value = NAN;
    tt_tensor *grad = tt_grad(tt_module_parameters(layer)->tensors[0]);
    CHECK(!grad || tt_item(grad, &value) == TT_OK);
    return value;
}

/* Run the checks, on two ranks. */
static inline void check_leaves_out(tt_group *group, int rank, const tt_device *device) {
    tt_module *a = tt_nn_linear(1, 1, .no_bias = true), *b = tt_nn_linear(1, 1, .no_bias = true);
    tt_module *both = tt_nn_sequential(a, b);
    CHECK_OK(tt_module_to_device(both, device));
    tt_module *ddp = tt_ddp(both, group, .bucket_cap_bytes = 1);
    CHECK(ddp);
    give_gradient(rank ? b : a, rank ? 6 : 4, device); /* each rank uses another parameter */
    CHECK(gradient_of(a) == 2 && gradient_of(b) == 3);
    give_gradient(a, 10, device); /* no rank uses b, which keeps its gradient */
    CHECK(gradient_of(a) == 12 && gradient_of(b) == 3);
    tt_zero_grad(tt_module_parameters(b)->tensors[0]);
    give_gradient(a, 0, device); /* ... or stays without one */
    CHECK(gradient_of(a) == 12 && isnan(gradient_of(b)));
    CHECK_OK(tt_ddp_set_sync(ddp, false));
    give_gradient(b, rank ? 8 : 2, device);
    CHECK(gradient_of(b) == (rank ? 8 : 2));
    CHECK_OK(tt_ddp_set_sync(ddp, true));
    give_gradient(a, 2, device);
    CHECK(gradient_of(a) == 14 && gradient_of(b) == 5);
    CHECK(tt_scale_(tt_grad(tt_module_parameters(b)->tensors[0]), rank + 1));
    give_gradient(a, 2, device); /* no rank uses b: each keeps its own gradient */
    CHECK(gradient_of(a) == 16 && gradient_of(b) == 5 * (rank + 1));
    tt_module_free(ddp);
    CHECK(gradient_of(a) == 16 && gradient_of(b) == 5 * (rank + 1)); /* gradients stay when the wrapper is freed */
    tt_module_free(both);
}

#endif
