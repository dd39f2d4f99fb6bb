/* Sharded optimizers beside plain ones, in the same processes: the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "dist/zero_models.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int worlds[] = {1, 2, 3, 4};

/* A model, wrapped, and its optimizer. */
typedef struct side {
    tt_module *model, *ddp;
    tt_optimizer *optimizer;
} side;

static side plain_side(tt_group *group, tt_zero_make_fn make, tt_dtype dtype, size_t cap) {
    side s = {.model = zero_branches()};
    CHECK_OK(tt_module_to(s.model, dtype));
    s.ddp = tt_ddp(s.model, group, .bucket_cap_bytes = cap);
    s.optimizer = make(tt_module_parameters(s.ddp), NULL);
    CHECK(s.optimizer);
    return s;
}

static side sharded_side(tt_group *group, tt_zero_make_fn make, int stage, tt_dtype dtype, size_t cap) {
    side s = {.model = zero_branches()};
    CHECK_OK(tt_module_to(s.model, dtype));
    s.ddp = tt_ddp(s.model, group, .bucket_cap_bytes = cap);
    s.optimizer = tt_zero_optimizer(s.ddp, make, NULL, .stage = stage);
    CHECK(s.optimizer);
    return s;
}

static void end_side(side *s) {
    tt_optimizer_free(s->optimizer);
    tt_module_free(s->ddp);
    tt_module_free(s->model);
}

/* ---- the same bits, whatever the optimizer */

typedef struct case_of {
    const char *name;
    tt_zero_make_fn make;
    tt_dtype dtype;
    size_t cap;
    int passes;  /* a step, of which the last averages */
    bool vary;   /* ranks use other parameters, in some passes none of a head */
    double clip; /* 0: not */
    double near; /* how far parameters may be apart; 0: not at all */
} case_of;

static const case_of cases[] = {
    {"sgd", zero_make_sgd, TT_F32, 0, 1, false, 0, 0},
    {"adam", zero_make_adam, TT_F32, 2048, 1, true, 0, 0},
    {"adamw, of several passes", zero_make_adamw, TT_F32, 2048, 3, true, 0, 0},
    {"adam in f64", zero_make_adam, TT_F64, 2048, 1, true, 0, 0},
    {"rmsprop", zero_make_rmsprop, TT_F32, 4096, 1, true, 0, 0},
    {"adagrad", zero_make_adagrad, TT_F32, 0, 1, true, 0, 0},
    {"adadelta", zero_make_adadelta, TT_F32, 0, 1, true, 0, 0},
    {"groups", zero_make_groups, TT_F32, 2048, 1, true, 0, 0},
    {"adam in bf16", zero_make_adam, TT_BF16, 2048, 1, true, 0, 0},
    {"sgd in f16", zero_make_sgd, TT_F16, 2048, 2, true, 0, 0},
    {"adamw, clipped", zero_make_adamw, TT_F32, 2048, 1, true, 0.5, 1e-6},
    {"lamb", zero_make_lamb, TT_F32, 2048, 1, true, 0, 1e-6},
};

static unsigned heads_of(const case_of *c, int pass, int rank) {
    return c->vary ? (unsigned)(pass * 7 + rank * 3 + pass / 4) % 4 : ZERO_LEFT | ZERO_RIGHT;
}

static void one_step(const case_of *c, side *s, int step, int rank) {
    tt_optimizer_zero_grad(s->optimizer);
    for (int i = 0; i < c->passes; i++) {
        int pass = step * c->passes + i;
        CHECK_OK(tt_ddp_set_sync(s->ddp, i + 1 == c->passes));
        zero_heads = heads_of(c, pass, rank);
        zero_pass(s->ddp, (uint64_t)(pass * 8 + rank), c->dtype, 1);
    }
}

static void expect_near(const case_of *c, tt_module *a, tt_module *b) {
    const tt_named_tensors *p = tt_module_parameters(a), *q = tt_module_parameters(b);
    if (c->near == 0) {
        zero_expect_same(p, q);
        return;
    }
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            CHECK(fabsf(tt_tensor_f32(p->tensors[i])[k] - tt_tensor_f32(q->tensors[i])[k]) <= c->near);
}

static void clip_both(const case_of *c, side *a, side *b) {
    double whole = 0, sliced = 0;
    CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(a->ddp), c->clip, .total_norm = &whole));
    CHECK_OK(tt_zero_clip_grad_norm_(b->optimizer, c->clip, .total_norm = &sliced));
    CHECK(whole > c->clip && fabs(whole - sliced) <= 1e-6 * whole);
}

/* Is what tt_zero_consolidate() gathers the plain optimizer's state? */
static void expect_state(const case_of *c, side *a, side *b, int rank) {
    const tt_named_tensors *plain = tt_optimizer_state_dict(a->optimizer);
    CHECK(!tt_optimizer_state_dict(b->optimizer) && tt_last_status() == TT_ERR_STATE);
    CHECK_TEXT("tt_zero_consolidate()");
    CHECK_OK(tt_zero_consolidate(b->optimizer, TT_ALL_RANKS));
    if (c->near == 0)
        zero_expect_same(plain, tt_optimizer_state_dict(b->optimizer));
    CHECK_OK(tt_zero_consolidate(b->optimizer, 0));
    const tt_named_tensors *gathered = tt_optimizer_state_dict(b->optimizer);
    CHECK(rank == 0 ? gathered && gathered->count == plain->count : !gathered);
}

static void compare_case(tt_group *group, int rank, const case_of *c, int stage) {
    side a = plain_side(group, c->make, c->dtype, c->cap), b = sharded_side(group, c->make, stage, c->dtype, c->cap);
    for (int step = 0; step < 8; step++) {
        one_step(c, &a, step, rank);
        one_step(c, &b, step, rank);
        if (c->clip > 0)
            clip_both(c, &a, &b);
        CHECK_OK(tt_optimizer_step(a.optimizer));
        CHECK_OK(tt_optimizer_step(b.optimizer));
        expect_near(c, a.ddp, b.ddp);
    }
    expect_state(c, &a, &b, rank);
    end_side(&a);
    end_side(&b);
}

static void compare_all(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int stage = 1; stage <= 2; stage++)
            compare_case(group, rank, &cases[i], stage);
}

static void parameters_have_the_plain_optimizers_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(worlds); i++)
        if (world_is_tried(worlds[i]))
            assert_int_equal(run_ranks(worlds[i], compare_all, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_plain_optimizers_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
