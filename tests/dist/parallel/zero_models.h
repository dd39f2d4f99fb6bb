/* Models and passes for the tests of sharded optimizers: a plain optimizer beside one of slices. */
#ifndef TESTS_DIST_ZERO_MODELS_H
#define TESTS_DIST_ZERO_MODELS_H

#include <string.h>
#include <tutti/tutti.h>

#include "support/ranks.h"

enum { ZERO_IN = 37, ZERO_HIDDEN = 61, ZERO_OUT = 5, ZERO_BATCH = 6, ZERO_LEFT = 1, ZERO_RIGHT = 2 };

/* Which heads the next forward takes. */
static unsigned zero_heads = ZERO_LEFT | ZERO_RIGHT;

static inline tt_tensor *zero_branches_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *stem = tt_tanh(tt_module_forward(tt_module_child(self, "stem"), x));
    tt_tensor *y = tt_narrow(stem, 1, 0, ZERO_OUT);
    if (zero_heads & ZERO_LEFT)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "left"), stem));
    if (zero_heads & ZERO_RIGHT)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "right"), stem));
    return y;
}

/* Layers of odd sizes, of which the last is never used. */
static inline tt_module *zero_branches(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Branches", .forward = zero_branches_forward);
    tt_manual_seed(7);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "stem", tt_nn_linear(ZERO_IN, ZERO_HIDDEN)));
    CHECK_OK(tt_module_add_module(m, "left", tt_nn_linear(ZERO_HIDDEN, ZERO_OUT)));
    CHECK_OK(tt_module_add_module(m, "right", tt_nn_linear(ZERO_HIDDEN, ZERO_OUT)));
    CHECK_OK(tt_module_add_module(m, "idle", tt_nn_linear(ZERO_HIDDEN, ZERO_OUT)));
    return m;
}

/* A backward pass on data of this number. `scale`: of the loss. */
static inline void zero_pass(tt_module *m, uint64_t data, tt_dtype dtype, double scale) {
    TT_AUTO_SCOPE;
    tt_manual_seed(data);
    tt_tensor *x = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_IN), NULL), *y = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_OUT), NULL);
    tt_tensor *out = tt_module_forward(m, tt_to(x, dtype));
    CHECK_OK(tt_backward(tt_scale(tt_mse_loss(tt_to(out, TT_F32), y), scale)));
}

/* Are the lists the same, in names, shapes and bits? */
static inline void zero_expect_same(const tt_named_tensors *a, const tt_named_tensors *b) {
    CHECK(a && b && a->count == b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const tt_tensor *x = a->tensors[i], *y = b->tensors[i];
        size_t bytes = (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x));
        tt_shape s = tt_tensor_shape(x), t = tt_tensor_shape(y);
        CHECK(!strcmp(a->names[i], b->names[i]) && tt_tensor_dtype(x) == tt_tensor_dtype(y));
        CHECK(s.ndim == t.ndim && !memcmp(s.dim, t.dim, (size_t)s.ndim * sizeof *s.dim));
        if (memcmp(tt_tensor_data(x), tt_tensor_data(y), bytes) != 0)
            fprintf(stderr, "\"%s\" differs\n", a->names[i]);
        CHECK(memcmp(tt_tensor_data(x), tt_tensor_data(y), bytes) == 0);
    }
}

static inline void zero_expect_same_parameters(tt_module *a, tt_module *b) {
    zero_expect_same(tt_module_parameters(a), tt_module_parameters(b));
}

/* ---- optimizers, by tt_zero_make_fn */

static inline tt_optimizer *zero_make_sgd(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_sgd(p, 0.05, .momentum = 0.9, .weight_decay = 1e-3, .nesterov = true);
}

static inline tt_optimizer *zero_make_adam(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adam(p, 3e-3, .amsgrad = true);
}

static inline tt_optimizer *zero_make_adamw(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adamw(p, 3e-3, 0.01);
}

static inline tt_optimizer *zero_make_rmsprop(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_rmsprop(p, 1e-3, .momentum = 0.9, .centered = true);
}

static inline tt_optimizer *zero_make_adagrad(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adagrad(p, 1e-2);
}

static inline tt_optimizer *zero_make_adadelta(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adadelta(p, 1.0);
}

static inline tt_optimizer *zero_make_lamb(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_lamb(p, 1e-2, 0.01);
}

/* Weights in one group, biases, without decay, in another. */
static inline tt_optimizer *zero_make_groups(const tt_named_tensors *p, void *user) {
    (void)user;
    const char *names[2][16];
    tt_tensor *tensors[2][16];
    int64_t n[2] = {0};
    for (int64_t i = 0; i < p->count; i++) {
        int g = strstr(p->names[i], "bias") != NULL;
        names[g][n[g]] = p->names[i];
        tensors[g][n[g]++] = p->tensors[i];
    }
    tt_optimizer *o = tt_adamw(TT_NAMED_TENSORS(n[0], names[0], tensors[0]), 1e-3, 0.1);
    if (tt_optimizer_add_param_group(o, TT_NAMED_TENSORS(n[1], names[1], tensors[1]),
                                     .options = TT_OPTION_LIST({"lr", 0.01}, {"weight_decay", 0})))
        return NULL;
    return o;
}

/* ---- both together */

/* A model, wrapped, and its optimizer. */
typedef struct zero_side {
    tt_module *model, *ddp;
    tt_optimizer *optimizer;
} zero_side;

static inline zero_side zero_plain_side(tt_group *group, tt_zero_make_fn make, tt_dtype dtype, size_t cap) {
    zero_side s = {.model = zero_branches()};
    CHECK_OK(tt_module_to(s.model, dtype));
    s.ddp = tt_ddp(s.model, group, .bucket_cap_bytes = cap);
    s.optimizer = make(tt_module_parameters(s.ddp), NULL);
    CHECK(s.optimizer);
    return s;
}

static inline zero_side zero_sharded_side(tt_group *group, tt_zero_make_fn make, int stage, tt_dtype dtype,
                                          size_t cap) {
    zero_side s = {.model = zero_branches()};
    CHECK_OK(tt_module_to(s.model, dtype));
    s.ddp = tt_ddp(s.model, group, .bucket_cap_bytes = cap);
    s.optimizer = tt_zero_optimizer(s.ddp, make, NULL, .stage = stage);
    CHECK(s.optimizer);
    return s;
}

static inline void zero_end_side(zero_side *s) {
    tt_optimizer_free(s->optimizer);
    tt_module_free(s->ddp);
    tt_module_free(s->model);
}

static inline void zero_train(zero_side *s, int begin, int end, int rank, tt_dtype dtype) {
    zero_heads = ZERO_LEFT | ZERO_RIGHT;
    for (int step = begin; step < end; step++) {
        tt_optimizer_zero_grad(s->optimizer);
        /* the same data on all ranks: the same gradients in worlds of 1, 2 and 4 */
        (void)rank;
        zero_pass(s->ddp, (uint64_t)step, dtype, 1);
        CHECK_OK(tt_optimizer_step(s->optimizer));
    }
}

#endif
