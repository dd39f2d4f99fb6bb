/* An optimizer that steps inside the backward pass leaves the bits that a step behind it leaves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"
#include "support/reducer_trace.h"

enum { IN = 6, HIDDEN = 10, OUT = 3, BATCH = 4, STEPS = 50, LEFT = 1, RIGHT = 2 };

/* ---- a model whose passes take one of two heads, both, or none */

static unsigned heads = LEFT | RIGHT;

static tt_tensor *heads_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *stem = tt_tanh(tt_module_forward(tt_module_child(self, "stem"), x)), *y = tt_narrow(stem, 1, 0, OUT);
    if (heads & LEFT)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "left"), stem));
    if (heads & RIGHT)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "right"), stem));
    return y;
}

static tt_module *make_heads(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Heads", .forward = heads_forward);
    TT_AUTO_SCOPE;
    tt_manual_seed(5);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "stem", tt_nn_linear(IN, HIDDEN)));
    CHECK_OK(tt_module_add_module(m, "left", tt_nn_linear(HIDDEN, OUT)));
    CHECK_OK(tt_module_add_module(m, "right", tt_nn_linear(HIDDEN, OUT)));
    return m;
}

static tt_status pass_through(tt_module *m, uint64_t data) {
    TT_AUTO_SCOPE;
    tt_manual_seed(data);
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    tt_dtype dtype = tt_tensor_dtype(tt_module_parameters(m)->tensors[0]);
    tt_tensor *out = tt_module_forward(m, tt_to(x, dtype));
    return tt_backward(tt_mse_loss(tt_to(out, TT_F32), y));
}

/* ---- optimizers */

static tt_optimizer *sgd_of(const tt_named_tensors *p) { return tt_sgd(p, 0.05, .momentum = 0.9); }
static tt_optimizer *adam_of(const tt_named_tensors *p) { return tt_adam(p, 0.01); }
static tt_optimizer *adamw_of(const tt_named_tensors *p) { return tt_adamw(p, 0.01, 0.1); }

/* What is trained, and how. */
typedef struct plan {
    const char *name;
    tt_optimizer *(*make)(const tt_named_tensors *params);
    size_t cap; /* of a bucket */
    bool zero_grad;
    bool unused;  /* each rank leaves out what it likes */
    int passes;   /* a step, of which only the last averages; 0: one */
    bool hooked;  /* with a communication hook */
    bool low;     /* parameters of 16 bits */
    bool twisted; /* the optimizer has the parameters in another order and two groups */
} plan;

static tt_optimizer *make_optimizer(const plan *plan, tt_module *m) {
    const tt_named_tensors *p = tt_module_parameters(m);
    if (!plan->twisted)
        return plan->make(p);
    tt_tensor *first[] = {p->tensors[5], p->tensors[0]},
              *second[] = {p->tensors[2], p->tensors[1], p->tensors[4], p->tensors[3]};
    static const char *const names[] = {"a", "b", "c", "d"};
    tt_optimizer *o = plan->make(TT_NAMED_TENSORS(2, names, first));
    CHECK_OK(
        tt_optimizer_add_param_group(o, TT_NAMED_TENSORS(4, names, second), .options = TT_OPTION_LIST({"lr", 0.02})));
    return o;
}

static void expect_same_lists(const tt_named_tensors *a, const tt_named_tensors *b) {
    CHECK(a && b && a->count == b->count);
    for (int64_t i = 0; i < a->count; i++)
        CHECK(tt_equal(a->tensors[i], b->tensors[i]));
}

static void train_both(tt_group *group, int rank, void *user) {
    const plan *plan = user;
    tt_module *model[2], *ddp[2];
    tt_optimizer *o[2];
    tt_lr_scheduler *scheduler[2];
    for (int k = 0; k < 2; k++) {
        model[k] = make_heads();
        if (plan->low)
            CHECK(tt_module_to(model[k], TT_BF16) == TT_OK);
        ddp[k] = tt_ddp(model[k], group, .bucket_cap_bytes = plan->cap);
        if (plan->hooked)
            CHECK_OK(tt_f16_hook(ddp[k]));
        o[k] = make_optimizer(plan, ddp[k]);
        scheduler[k] = tt_step_lr(o[k], 7, .gamma = 0.8);
        CHECK(ddp[k] && o[k] && scheduler[k]);
    }
    CHECK_OK(tt_ddp_step_in_backward(ddp[1], o[1], .zero_grad = plan->zero_grad));
    for (int step = 0, pass = 0; step < STEPS; step++) {
        int passes = plan->passes ? plan->passes : 1;
        tt_optimizer_zero_grad(o[0]);
        if (!plan->zero_grad)
            tt_optimizer_zero_grad(o[1]);
        for (int i = 1; i <= passes; i++, pass++)
            for (int k = 0; k < 2; k++) {
                heads = plan->unused ? (unsigned)(pass * 7 + rank * 3 + pass / 5) % 4 : LEFT | RIGHT;
                CHECK_OK(tt_ddp_set_sync(ddp[k], i == passes));
                CHECK_OK(pass_through(ddp[k], (uint64_t)(pass * 10 + rank)));
            }
        CHECK_OK(tt_optimizer_step(o[0]));
        for (int k = 0; k < 2; k++)
            CHECK_OK(tt_lr_scheduler_step(scheduler[k]));
        expect_same_lists(tt_module_parameters(ddp[0]), tt_module_parameters(ddp[1]));
        for (int64_t i = 0; plan->zero_grad && i < tt_module_parameters(ddp[1])->count; i++)
            CHECK(!tt_grad(tt_module_parameters(ddp[1])->tensors[i]));
    }
    expect_same_lists(tt_optimizer_state_dict(o[0]), tt_optimizer_state_dict(o[1]));
    for (int k = 0; k < 2; k++) {
        tt_lr_scheduler_free(scheduler[k]);
        tt_optimizer_free(o[k]);
        tt_module_free(ddp[k]);
        tt_module_free(model[k]);
    }
}

static void the_bits_are_those_of_a_step_behind(void **state) {
    (void)state;
    static plan plans[] = {
        {.name = "SGD", .make = sgd_of, .cap = 1, .zero_grad = true},
        {.name = "SGD, gradients kept", .make = sgd_of, .cap = 100},
        {.name = "Adam", .make = adam_of, .cap = 1, .zero_grad = true},
        {.name = "Adam, one bucket", .make = adam_of},
        {.name = "AdamW, two groups", .make = adamw_of, .cap = 100, .zero_grad = true, .twisted = true},
        {.name = "AdamW, unused", .make = adamw_of, .cap = 1, .zero_grad = true, .unused = true},
        {.name = "SGD, unused, gradients kept", .make = sgd_of, .cap = 100, .unused = true},
        {.name = "Adam, no_sync", .make = adam_of, .cap = 1, .zero_grad = true, .passes = 3},
        {.name = "SGD, no_sync, unused", .make = sgd_of, .cap = 1, .zero_grad = true, .unused = true, .passes = 3},
        {.name = "AdamW, a hook", .make = adamw_of, .cap = 1, .zero_grad = true, .hooked = true},
        {.name = "Adam, 16 bits", .make = adam_of, .cap = 1, .zero_grad = true, .low = true, .unused = true},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int world = 1; world <= 3; world++) {
            print_message("%s, %d ranks\n", plans[i].name, world);
            assert_int_equal(run_ranks(world, train_both, &plans[i]), 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_a_step_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
