/* What the tests of graphs on the CUDA device have in common: a training program whose step is a function of static
 * tensors. After cuda_compare.h. */
#ifndef TT_TESTS_UNIT_CUDA_TRAINING_H
#define TT_TESTS_UNIT_CUDA_TRAINING_H

#include <stdint.h>

enum { BATCH = 8, FEATURES = 64 };

typedef struct training {
    tt_module *model;
    tt_optimizer *optimizer;
    tt_grad_scaler *scaler;
    tt_tensor *x, *y, *loss; /* static */
    tt_dtype autocast;       /* TT_F32: none */
} training;

typedef struct program {
    const char *name;
    tt_module *(*model)(void);
    tt_optimizer *(*optimizer)(const tt_named_tensors *params);
    double lr_gamma; /* of a scheduler; 0: none */
    tt_dtype autocast;
    double scale; /* of a scaler, which steps outside of the graph; 0: none */
} program;

static inline tt_module *mlp(void) {
    return tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(FEATURES, 32), tt_nn_dropout(0.3), tt_nn_layer_norm(S(32)),
                            tt_nn_gelu(), tt_nn_dropout(0.5), tt_nn_linear(32, 5));
}

static inline tt_module *conv_net(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3, .padding = 1), tt_nn_batch_norm2d(4), tt_nn_relu(),
                            tt_nn_max_pool2d(2), tt_nn_flatten(), tt_nn_dropout(0.25), tt_nn_linear(64, 5));
}

static inline tt_optimizer *adam(const tt_named_tensors *params) { return tt_adam(params, 0.01); }
static inline tt_tensor *forward(training *t) {
    int before = t->autocast == TT_F32 ? 0 : tt_autocast_begin(t->autocast);
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(t->model, t->x), t->y);
    if (t->autocast != TT_F32)
        tt_autocast_end(before);
    return loss;
}

/* The whole step; with a scaler all but the optimizer's. */
static inline tt_status step(void *user) {
    training *t = user;
    tt_tensor *loss = forward(t);
    tt_optimizer_zero_grad(t->optimizer);
    if (tt_backward(t->scaler ? tt_grad_scaler_scale(t->scaler, loss) : loss) ||
        (!t->scaler && tt_optimizer_step(t->optimizer)))
        return tt_last_status();
    return tt_copy(t->loss, tt_detach(loss));
}

static inline void begin(training *t, const program *p) {
    tt_manual_seed(5);
    *t = (training){.model = p->model(), .autocast = p->autocast};
    assert_false(tt_module_to_device(t->model, TT_CUDA(0)));
    t->optimizer = p->optimizer(tt_module_parameters(t->model));
    t->scaler = p->scale != 0 ? tt_grad_scaler_new(p->scale, .growth_interval = 4) : NULL;
    t->x = tt_keep(there(tt_zeros(S(BATCH, 1, 8, 8), TT_F32)));
    t->y = tt_keep(there(tt_zeros(S(BATCH), TT_I64)));
    t->loss = tt_keep(there(tt_zeros(TT_SCALAR, TT_F32)));
    assert_true(t->model && t->optimizer && t->x && t->y && t->loss);
}

static inline void end(training *t) {
    tt_tensor_free(t->x);
    tt_tensor_free(t->y);
    tt_tensor_free(t->loss);
    tt_grad_scaler_free(t->scaler);
    tt_optimizer_free(t->optimizer);
    tt_module_free(t->model);
}

/* Batch i, the same in each run. */
static inline void put_batch(training *t, int i) {
    TT_AUTO_SCOPE;
    tt_generator *g = tt_generator_new((uint64_t)i + 1);
    tt_tensor *x = tt_randn(S(BATCH, 1, 8, 8), g), *y = tt_randint(0, 5, S(BATCH), g);
    assert_false(tt_copy(t->x, x) || tt_copy(t->y, y));
    tt_generator_free(g);
}

/* Bytes of the device's that are in tensors and graphs. */
static inline int64_t allocated(void) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    assert_false(tt_device_memory_get(TT_CUDA(0), &memory));
    return memory.allocated;
}

#endif
