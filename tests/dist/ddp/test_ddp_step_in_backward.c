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
    bool apart;   /* one head is each rank's own */
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
        ddp[k] =
            tt_ddp(model[k], group, .bucket_cap_bytes = plan->cap, .ignored = plan->apart ? TT_NAMES("left") : NULL);
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
        {.name = "Adam, a head of each rank's own", .make = adam_of, .cap = 1, .zero_grad = true, .apart = true},
        {.name = "Adam, 16 bits", .make = adam_of, .cap = 1, .zero_grad = true, .low = true, .unused = true},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int world = 1; world <= 3; world++) {
            print_message("%s, %d ranks\n", plans[i].name, world);
            assert_int_equal(run_ranks(world, train_both, &plans[i]), 0);
        }
}

/* ---- one bucket after the other */

typedef struct watch {
    tt_module *ddp;
    float before[8][IN * HIDDEN];
    int64_t ended;
} watch;

static bool has_moved(const watch *w, int64_t i) {
    const tt_tensor *x = tt_module_parameters(w->ddp)->tensors[i];
    return memcmp(w->before[i], tt_tensor_data(x), (size_t)tt_tensor_numel(x) * sizeof(float)) != 0;
}

/* When a bucket ends, those that ended before are stepped, without gradients, and no others are. */
static void look(const tt_reducer_event *event, void *user) {
    watch *w = user;
    if (event->kind != TT_REDUCER_END)
        return;
    const tt_named_tensors *p = tt_module_parameters(w->ddp);
    for (int64_t i = 0; i < p->count; i++) {
        bool stepped = tt_reducer_bucket_of(tt_ddp_reducer(w->ddp), i) < (int64_t)event->index;
        CHECK(has_moved(w, i) == stepped);
        CHECK(!stepped || !tt_grad(p->tensors[i]));
    }
    w->ended++;
}

static void watch_buckets(tt_group *group, int rank, void *user) {
    (void)user;
    heads = LEFT | RIGHT;
    tt_module *model = make_heads(), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 1);
    tt_optimizer *o = sgd_of(tt_module_parameters(ddp));
    CHECK_OK(tt_ddp_step_in_backward(ddp, o, .zero_grad = true));
    for (int step = 0; step < 5; step++) {
        watch w = {.ddp = ddp};
        const tt_named_tensors *p = tt_module_parameters(ddp);
        for (int64_t i = 0; i < p->count; i++)
            memcpy(w.before[i], tt_tensor_data(p->tensors[i]), (size_t)tt_tensor_numel(p->tensors[i]) * sizeof(float));
        tt_reducer_set_trace(tt_ddp_reducer(ddp), look, &w);
        CHECK_OK(pass_through(ddp, (uint64_t)(step * 10 + rank)));
        CHECK(w.ended == 6);
        tt_reducer_set_trace(tt_ddp_reducer(ddp), NULL, NULL);
        for (int64_t i = 0; i < p->count; i++)
            CHECK(has_moved(&w, i));
    }
    tt_optimizer_free(o);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void a_bucket_is_stepped_before_the_next_ends(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++)
        assert_int_equal(run_ranks(world, watch_buckets, NULL), 0);
}

/* ---- ranks with less data */

static tt_status step_behind(void *user) {
    tt_status status = tt_optimizer_step(user);
    tt_optimizer_zero_grad(user);
    return status;
}

static void join_both(tt_group *group, int rank, void *user) {
    (void)user;
    heads = LEFT | RIGHT;
    tt_module *model[2], *ddp[2];
    for (int k = 0; k < 2; k++) {
        model[k] = make_heads();
        ddp[k] = tt_ddp(model[k], group, .bucket_cap_bytes = 1);
        tt_optimizer *o = adam_of(tt_module_parameters(ddp[k]));
        if (k == 1)
            CHECK_OK(tt_ddp_step_in_backward(ddp[k], o, .zero_grad = true));
        tt_join *join = k ? tt_join_new(ddp[k]) : tt_join_new(ddp[k], .after_step = step_behind, .user = o);
        CHECK(join);
        for (int epoch = 0; epoch < 3; epoch++) {
            for (int step = 0; step < 4 + 3 * ((rank + epoch) % 3); step++) {
                CHECK_OK(pass_through(ddp[k], (uint64_t)(epoch * 1000 + step * 10 + rank)));
                if (k == 0)
                    CHECK_OK(step_behind(o));
            }
            CHECK_OK(tt_join_wait(join));
        }
        tt_join_free(join);
        tt_optimizer_free(o);
    }
    expect_same_lists(tt_module_parameters(ddp[0]), tt_module_parameters(ddp[1]));
    for (int k = 0; k < 2; k++) {
        tt_module_free(ddp[k]);
        tt_module_free(model[k]);
    }
}

static void ranks_without_data_step_as_well(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, join_both, NULL), 0);
    assert_int_equal(run_ranks(3, join_both, NULL), 0);
}

/* ---- beginning, end, and what does not fit */

static tt_optimizer *make_sgd(const tt_named_tensors *p, void *user) { return (void)user, sgd_of(p); }

static void expect_refused(tt_status status, tt_status expected, const char *text) {
    CHECK(status == expected);
    CHECK_TEXT(text);
}

static void refuse_optimizers(tt_group *group, tt_module *ddp, tt_optimizer *o, int rank) {
    const tt_named_tensors *p = tt_module_parameters(ddp);
    expect_refused(tt_ddp_step_in_backward(NULL, o), TT_ERR_INVALID, "expected a wrapper");
    expect_refused(tt_ddp_step_in_backward(ddp, o, .zero_grad = rank == 1), TT_ERR_MISMATCH,
                   "tt_sgd of 6 parameters in 1 groups, .zero_grad = 1");
    tt_optimizer *lamb = tt_lamb(p, 0.01, 0), *zero = tt_zero_optimizer(ddp, make_sgd, NULL);
    CHECK(lamb && zero);
    expect_refused(tt_ddp_step_in_backward(ddp, zero), TT_ERR_UNSUPPORTED, "a tt_zero_optimizer() works with");
    tt_module *model = make_heads(), *other = tt_ddp(model, group);
    expect_refused(tt_ddp_step_in_backward(other, zero), TT_ERR_UNSUPPORTED, "slices of parameters");
    expect_refused(tt_ddp_step_in_backward(other, o), TT_ERR_UNSUPPORTED, "parameter 0 is averaged by another wrapper");
    tt_optimizer_free(zero);
    expect_refused(tt_ddp_step_in_backward(ddp, lamb), TT_ERR_UNSUPPORTED, "tt_lamb needs the norm of all gradients");
    tt_tensor *strange = tt_requires_grad_(tt_ones(TT_SHAPE(2), TT_F32), true);
    tt_optimizer *none = tt_sgd(TT_NAMED_TENSORS(1, TT_NAMES("x"), &strange), 0.1);
    expect_refused(tt_ddp_step_in_backward(ddp, none), TT_ERR_INVALID, "has none of the wrapper's 6 parameters");
    tt_optimizer_free(none);
    tt_optimizer_free(lamb);
    tt_module_free(other);
    other = tt_ddp(model, group, .virtual_ranks = 4);
    tt_optimizer *virtuals = sgd_of(tt_module_parameters(other));
    expect_refused(tt_ddp_step_in_backward(other, virtuals), TT_ERR_UNSUPPORTED, "without .virtual_ranks");
    tt_optimizer_free(virtuals);
    tt_module_free(other);
    tt_module_free(model);
}

static void refuse_joins(tt_module *ddp, tt_optimizer *o) {
    tt_join *join = tt_join_new(ddp, .examples = BATCH);
    expect_refused(tt_ddp_step_in_backward(ddp, o, .zero_grad = true), TT_ERR_UNSUPPORTED, "can have no .examples");
    tt_join_free(join);
    join = tt_join_new(ddp);
    expect_refused(tt_ddp_step_in_backward(ddp, o), TT_ERR_UNSUPPORTED, "needs .zero_grad");
    tt_join_free(join);
    CHECK_OK(tt_ddp_step_in_backward(ddp, o));
    CHECK(!tt_join_new(ddp) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_OK(tt_ddp_step_in_backward(ddp, o, .zero_grad = true));
    CHECK(!tt_join_new(ddp, .divide_by_present = true) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK(!tt_join_new(ddp, .end_early = true) && tt_last_status() == TT_ERR_UNSUPPORTED);
}

/* While tt_backward() steps the optimizer nothing else does. */
static void refuse_calls(tt_module *ddp, tt_optimizer *o) {
    tt_grad_scaler *scaler = tt_grad_scaler_new(1024);
    tt_tensor *more = tt_requires_grad_(tt_ones(TT_SHAPE(2), TT_F32), true);
    expect_refused(tt_optimizer_step(o), TT_ERR_STATE, "tt_backward() steps this optimizer already");
    expect_refused(tt_grad_scaler_step(scaler, o), TT_ERR_STATE, "tt_grad_scaler_step: tt_backward() steps");
    expect_refused(tt_grad_scaler_unscale_(scaler, o), TT_ERR_STATE, "tt_grad_scaler_unscale_: tt_backward() steps");
    expect_refused(tt_optimizer_add_param_group(o, TT_NAMED_TENSORS(1, TT_NAMES("x"), &more)), TT_ERR_STATE,
                   "tt_optimizer_add_param_group: tt_backward() steps");
    CHECK(!tt_zero_optimizer(ddp, make_sgd, NULL) && tt_last_status() == TT_ERR_UNSUPPORTED);
    tt_grad_scaler_free(scaler);
}

static bool moves(tt_module *ddp, int64_t i, uint64_t data) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_module_parameters(ddp)->tensors[i], *before = tt_clone(tt_detach(x));
    CHECK_OK(pass_through(ddp, data));
    return !tt_equal(before, x);
}

static void begin_and_end(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    heads = LEFT | RIGHT;
    tt_module *model = make_heads(), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 1);
    const tt_named_tensors *p = tt_module_parameters(ddp);
    tt_optimizer *o = sgd_of(p), *part = tt_sgd(TT_NAMED_TENSORS(2, p->names, p->tensors), 0.1);
    refuse_optimizers(group, ddp, o, rank);
    CHECK(!moves(ddp, 0, 1) && tt_optimizer_step(o) == TT_OK); /* nothing was begun */
    refuse_joins(ddp, o);
    refuse_calls(ddp, o);
    CHECK(moves(ddp, 0, 2) && moves(ddp, 5, 3) && !tt_grad(p->tensors[5]));
    CHECK_OK(tt_ddp_step_in_backward(ddp, part, .zero_grad = true)); /* in the other's place */
    CHECK_OK(tt_optimizer_step(o));
    CHECK(moves(ddp, 0, 4) && !moves(ddp, 5, 5) && !tt_grad(p->tensors[0]) && tt_grad(p->tensors[5]));
    CHECK_OK(tt_ddp_step_in_backward(ddp, NULL));
    CHECK(!moves(ddp, 0, 6) && tt_optimizer_step(part) == TT_OK);
    CHECK_OK(tt_ddp_step_in_backward(ddp, part));
    tt_optimizer_free(part); /* ends it */
    CHECK(!moves(ddp, 0, 7));
    CHECK_OK(tt_ddp_step_in_backward(ddp, o));
    tt_module_free(ddp); /* ends it as well */
    CHECK_OK(tt_optimizer_step(o));
    tt_optimizer_free(o);
    tt_module_free(model);
}

static void it_begins_and_ends_as_said(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, begin_and_end, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_a_step_behind),
        cmocka_unit_test(a_bucket_is_stepped_before_the_next_ends),
        cmocka_unit_test(ranks_without_data_step_as_well),
        cmocka_unit_test(it_begins_and_ends_as_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
