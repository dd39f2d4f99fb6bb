/* Sharded optimizers beside plain ones, in the same processes: the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "dist/parallel/zero_models.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int worlds[] = {1, 2, 3, 4};

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

static void one_step(const case_of *c, zero_side *s, int step, int rank) {
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

static void clip_both(const case_of *c, zero_side *a, zero_side *b) {
    double whole = 0, sliced = 0;
    CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(a->ddp), c->clip, .total_norm = &whole));
    CHECK_OK(tt_zero_clip_grad_norm_(b->optimizer, c->clip, .total_norm = &sliced));
    CHECK(whole > c->clip && fabs(whole - sliced) <= 1e-6 * whole);
}

/* Is what tt_zero_consolidate() gathers the plain optimizer's state? */
static void expect_state(const case_of *c, zero_side *a, zero_side *b, int rank) {
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
    zero_side a = zero_plain_side(group, c->make, c->dtype, c->cap),
              b = zero_sharded_side(group, c->make, stage, c->dtype, c->cap);
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
    zero_end_side(&a);
    zero_end_side(&b);
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

static void so_they_have_without_shared_memory(void **state) {
    (void)state;
    setenv("TT_TRANSPORT", "tcp", 1);
    int bad = run_ranks(3, compare_all, NULL);
    unsetenv("TT_TRANSPORT");
    assert_int_equal(bad, 0);
}

/* ---- gradient scaler and schedulers */

static void scale_and_schedule(tt_group *group, int rank, void *user) {
    const int stage = *(int *)user;
    zero_side a = zero_plain_side(group, zero_make_adam, TT_F32, 2048),
              b = zero_sharded_side(group, zero_make_adam, stage, TT_F32, 2048);
    tt_grad_scaler *scalers[2] = {tt_grad_scaler_new(1024, .growth_interval = 2),
                                  tt_grad_scaler_new(1024, .growth_interval = 2)};
    tt_lr_scheduler *schedulers[2] = {tt_step_lr(a.optimizer, 2), tt_step_lr(b.optimizer, 2)};
    zero_side *sides[2] = {&a, &b};
    zero_heads = ZERO_LEFT | ZERO_RIGHT;
    for (int step = 0; step < 8; step++) {
        for (int i = 0; i < 2; i++) {
            tt_optimizer_zero_grad(sides[i]->optimizer);
            /* in one step a single rank's loss is infinite */
            double scale = step == 3 && rank == 0 ? INFINITY : tt_grad_scaler_get_scale(scalers[i]);
            zero_pass(sides[i]->ddp, (uint64_t)(step * 8 + rank), TT_F32, scale);
            CHECK_OK(tt_grad_scaler_step(scalers[i], sides[i]->optimizer));
            CHECK(tt_grad_scaler_found_inf(scalers[i], sides[i]->optimizer) == (step == 3));
            CHECK_OK(tt_grad_scaler_update(scalers[i]));
            CHECK_OK(tt_lr_scheduler_step(schedulers[i]));
        }
        CHECK(tt_grad_scaler_get_scale(scalers[0]) == tt_grad_scaler_get_scale(scalers[1]));
        zero_expect_same_parameters(a.ddp, b.ddp);
    }
    for (int i = 0; i < 2; i++) {
        tt_lr_scheduler_free(schedulers[i]);
        tt_grad_scaler_free(scalers[i]);
        zero_end_side(sides[i]);
    }
}

static void scalers_and_schedulers_work_as_with_a_plain_one(void **state) {
    (void)state;
    for (int stage = 1; stage <= 2; stage++)
        assert_int_equal(run_ranks(3, scale_and_schedule, &stage), 0);
}

/* ---- gradients */

/* Does every parameter's slice have a gradient, and a parameter itself? */
static void expect_gradients(const zero_side *s, bool whole, bool slices) {
    const tt_named_tensors *p = tt_module_parameters(s->ddp), *q = tt_optimizer_master_params(s->optimizer);
    for (int64_t i = 0; i < p->count; i++) {
        bool used = strncmp(p->names[i], "idle", 4) != 0;
        CHECK((tt_grad(p->tensors[i]) != NULL) == (whole && used));
        CHECK((tt_grad(q->tensors[i]) != NULL) == (slices && used));
    }
}

static void watch_gradients(tt_group *group, int rank, void *user) {
    const int stage = *(int *)user;
    zero_side a = zero_plain_side(group, zero_make_sgd, TT_F32, 2048),
              b = zero_sharded_side(group, zero_make_sgd, stage, TT_F32, 2048);
    expect_gradients(&b, false, false);
    zero_pass(b.ddp, (uint64_t)rank, TT_F32, 1);
    expect_gradients(&b, stage == 1, true);
    for (int i = 0; i < 2; i++) { /* both ways to forget them */
        if (i)
            tt_optimizer_zero_grad(b.optimizer);
        else
            for (int64_t k = 0; k < tt_module_parameters(b.model)->count; k++)
                tt_zero_grad(tt_module_parameters(b.model)->tensors[k]);
        expect_gradients(&b, false, false);
        zero_pass(b.ddp, (uint64_t)rank, TT_F32, 1);
    }
    zero_pass(b.ddp, (uint64_t)(8 + rank), TT_F32, 1); /* passes add up */
    zero_pass(a.ddp, (uint64_t)rank, TT_F32, 1);
    zero_pass(a.ddp, (uint64_t)(8 + rank), TT_F32, 1);
    CHECK_OK(tt_optimizer_step(a.optimizer));
    CHECK_OK(tt_optimizer_step(b.optimizer));
    const tt_named_tensors *p = tt_module_parameters(a.ddp), *q = tt_module_parameters(b.ddp);
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            CHECK(fabsf(tt_tensor_f32(p->tensors[i])[k] - tt_tensor_f32(q->tensors[i])[k]) <= 1e-6f);
    zero_end_side(&a);
    zero_end_side(&b);
}

static void gradients_are_where_the_stage_says(void **state) {
    (void)state;
    for (int stage = 1; stage <= 2; stage++)
        assert_int_equal(run_ranks(2, watch_gradients, &stage), 0);
}

/* ---- memory */

enum { WIDE = 2304 }; /* a weight of 20 MiB */

typedef struct memory {
    double anonymous_mb, shared_mb;
} memory;

static memory memory_now(void) {
    memory m = {0};
    char line[200];
    long kb;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            m.anonymous_mb = (double)kb / 1024;
        if (sscanf(line, "RssShmem: %ld", &kb) == 1)
            m.shared_mb = (double)kb / 1024;
    }
    fclose(f);
    return m;
}

static void wide_pass(tt_module *ddp) {
    TT_AUTO_SCOPE;
    CHECK_OK(tt_backward(tt_mean(tt_module_forward(ddp, tt_ones(TT_SHAPE(1, WIDE), TT_F32)))));
}

static void weigh(tt_group *group, int rank, void *user) {
    const int stage = *(int *)user, world = tt_get_world_size(group);
    const double weight_mb = (double)WIDE * WIDE * 4 / (1 << 20);
    (void)rank;
    zero_side s = {.model = tt_nn_linear(WIDE, WIDE)};
    s.ddp = tt_ddp(s.model, group);
    s.optimizer = stage ? tt_zero_optimizer(s.ddp, zero_make_adamw, NULL, .stage = stage)
                        : zero_make_adamw(tt_module_parameters(s.ddp), NULL);
    CHECK(s.optimizer);
    wide_pass(s.ddp);
    CHECK_OK(tt_barrier(group));
    memory before = memory_now();
    CHECK_OK(tt_optimizer_step(s.optimizer));
    double grown = memory_now().anonymous_mb - before.anonymous_mb;
    if (before.shared_mb > 0 && !getenv("TT_SANITIZED")) {    /* the system tells, and memory is only ours */
        CHECK(grown > 1.8 * weight_mb / (stage ? world : 1)); /* two numbers for each parameter */
        CHECK(grown < 1.1 * 2 * weight_mb / (stage ? world : 1));
        double gradients = before.shared_mb - (stage ? weight_mb : 0); /* sliced parameters lie there, too */
        CHECK(stage == 2 ? gradients < 0.5 * weight_mb : gradients > 0.9 * weight_mb);
    }
    zero_end_side(&s);
}

static void memory_is_a_ranks_share(void **state) {
    (void)state;
    for (int stage = 0; stage <= 2; stage++)
        assert_int_equal(run_ranks(4, weigh, &stage), 0);
}

/* ---- what differs between ranks */

typedef struct difference {
    const char *name, *text;
    int stage[2];
    tt_zero_make_fn make[2];
} difference;

static tt_optimizer *make_other_lr(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adamw(p, 4e-3, 0.01);
}

static tt_optimizer *make_none(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adamw(p, -1, 0.01);
}

/* All parameters but the first. */
static tt_optimizer *make_rest(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adamw(TT_NAMED_TENSORS(p->count - 1, p->names + 1, p->tensors + 1), 3e-3, 0.01);
}

static const difference differences[] = {
    {"stage", "rank 1 has stage 2 where rank 0 has stage 1", {1, 2}, {zero_make_adamw, zero_make_adamw}},
    {"class", "rank 1 has tt_sgd", {1, 1}, {zero_make_adamw, zero_make_sgd}},
    {"option", "rank 1 has \"lr\" 0.0040000000000000001 in group 0", {1, 1}, {zero_make_adamw, make_other_lr}},
    {"parameters", "rank 1 has parameter 0 \"stem.bias\" in group 0", {2, 2}, {zero_make_adamw, make_rest}},
    {"none", "rank 1 has no optimizer (tt_adamw: ", {1, 1}, {zero_make_adamw, make_none}},
};

static void differ(tt_group *group, int rank, void *user) {
    (void)user;
    zero_side s = {.model = zero_branches()};
    s.ddp = tt_ddp(s.model, group);
    for (size_t i = 0; i < COUNT(differences); i++) {
        const difference *d = &differences[i];
        CHECK(!tt_zero_optimizer(s.ddp, d->make[rank], NULL, .stage = d->stage[rank]));
        CHECK(tt_last_status() == TT_ERR_MISMATCH);
        CHECK_TEXT(d->text);
    }
    CHECK(!tt_zero_optimizer(s.ddp, make_none, NULL) && tt_last_status() == TT_ERR_INVALID); /* alike on all */
    CHECK_TEXT("lr");
    s.optimizer = tt_zero_optimizer(s.ddp, zero_make_sgd, NULL); /* nothing is spoilt */
    zero_train(&s, 0, 2, rank, TT_F32);
    zero_end_side(&s);
}

static void ranks_that_differ_are_told_so(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, differ, NULL), 0);
}

/* ---- misuse */

static tt_optimizer *make_foreign(const tt_named_tensors *p, void *user) {
    (void)p;
    return tt_sgd(tt_module_parameters(user), 0.1);
}

static tt_status next_nothing(void *state, const tt_bucket *bucket, int stage, tt_work **work) {
    (void)state, (void)bucket, (void)stage, (void)work;
    return TT_OK;
}

static void misuse(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_comm_hook nothing = {.size = sizeof nothing, .name = "nothing", .next = next_nothing};
    zero_side s = {.model = zero_branches()};
    CHECK(!tt_zero_optimizer(s.model, zero_make_sgd, NULL) && tt_last_status() == TT_ERR_INVALID);
    s.ddp = tt_ddp(s.model, group);
    CHECK(!tt_zero_optimizer(s.ddp, NULL, NULL) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_zero_optimizer(s.ddp, zero_make_sgd, NULL, .stage = 4) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_zero_optimizer(s.ddp, make_foreign, s.model) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("other tensors");
    CHECK_OK(tt_ddp_register_comm_hook(s.ddp, &nothing, NULL));
    CHECK(!tt_zero_optimizer(s.ddp, zero_make_sgd, NULL, .stage = 2) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_OK(tt_ddp_register_comm_hook(s.ddp, NULL, NULL));
    s.optimizer = tt_zero_optimizer(s.ddp, zero_make_sgd, NULL, .stage = 2);
    CHECK(s.optimizer);
    CHECK(!tt_zero_optimizer(s.ddp, zero_make_sgd, NULL) && tt_last_status() == TT_ERR_STATE);
    CHECK(tt_optimizer_add_param_group(s.optimizer, tt_module_parameters(s.model)) == TT_ERR_UNSUPPORTED);
    tt_optimizer *plain = tt_sgd(tt_module_parameters(s.model), 0.1);
    CHECK(tt_zero_consolidate(plain, 0) == TT_ERR_INVALID);
    CHECK(tt_zero_clip_grad_norm_(plain, 1) == TT_ERR_INVALID);
    tt_optimizer_free(plain);
    CHECK(tt_zero_consolidate(s.optimizer, 7) == TT_ERR_INVALID);
    zero_train(&s, 0, 2, rank, TT_F32);
    CHECK_OK(tt_ddp_register_comm_hook(s.ddp, &nothing, NULL)); /* takes the place of stage 2's */
    CHECK(tt_optimizer_step(s.optimizer) == TT_ERR_STATE);
    CHECK_TEXT("communication hook");
    zero_end_side(&s);
}

static void misuse_is_told(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, misuse, NULL), 0);
}

/* ---- ends, in any order */

static double sum_of(tt_tensor *x) {
    double sum = 0;
    TT_AUTO_SCOPE;
    CHECK_OK(tt_item(tt_sum(tt_detach(x)), &sum));
    return sum;
}

static void converted(tt_group *group, int rank, void *user) {
    (void)user, (void)rank;
    zero_side s = zero_sharded_side(group, zero_make_sgd, 1, TT_F32, 0);
    tt_tensor *first = tt_module_parameters(s.model)->tensors[0];
    double before, after;
    before = sum_of(first);
    tt_module_free(s.ddp);
    s.ddp = NULL;
    CHECK_OK(tt_module_to(s.model, TT_F64));
    CHECK(tt_optimizer_step(s.optimizer) == TT_ERR_STATE);
    tt_optimizer_free(s.optimizer);
    CHECK(tt_tensor_dtype(first) == TT_F64);
    after = sum_of(first);
    CHECK(fabs(before - after) <= 1e-3);
    tt_module_free(s.model);
}

static void end_in_order(tt_group *group, int rank, void *user) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    (void)user;
    for (int i = 0; i < 12; i++) {
        zero_side s = zero_sharded_side(group, zero_make_adam, 1 + i / 6, TT_F32, 2048);
        zero_train(&s, 0, 2, rank, TT_F32);
        double before, after;
        tt_tensor *first = tt_module_parameters(s.model)->tensors[0];
        before = sum_of(first);
        bool module = true;
        for (int k = 0; k < 3; k++) {
            if (orders[i % 6][k] == 0) {
                tt_optimizer_free(s.optimizer);
                s.optimizer = NULL;
            } else if (orders[i % 6][k] == 1) {
                tt_module_free(s.ddp);
                s.ddp = NULL;
            } else {
                tt_module_free(s.model);
                module = false;
            }
            if (s.optimizer && !s.ddp) {
                CHECK(tt_optimizer_step(s.optimizer) == TT_ERR_STATE);
                CHECK_TEXT("was freed");
            }
            if (module || s.ddp || s.optimizer) {
                after = sum_of(first);
                CHECK(before == after); /* values stay, wherever they lie */
            }
            if (s.ddp)
                zero_pass(s.ddp, (uint64_t)rank, TT_F32, 1); /* with gradients that are averaged in either way */
        }
    }
    tt_module *model = zero_branches(), *ddp = tt_ddp(model, group);
    tt_optimizer *left = tt_zero_optimizer(ddp, zero_make_adam, NULL, .stage = 2);
    tt_destroy_process_group(group); /* before all that has memory in it */
    CHECK(tt_optimizer_step(left) == TT_ERR_STATE);
    tt_optimizer_free(left);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_store_free(NULL);
    _exit(0);
}

static void all_may_end_in_any_order(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, end_in_order, NULL), 0);
    assert_int_equal(run_ranks(2, converted, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_plain_optimizers_bits),
        cmocka_unit_test(so_they_have_without_shared_memory),
        cmocka_unit_test(scalers_and_schedulers_work_as_with_a_plain_one),
        cmocka_unit_test(gradients_are_where_the_stage_says),
        cmocka_unit_test(memory_is_a_ranks_share),
        cmocka_unit_test(ranks_that_differ_are_told_so),
        cmocka_unit_test(misuse_is_told),
        cmocka_unit_test(all_may_end_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
