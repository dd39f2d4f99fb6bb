/* reducer: communication hooks average buckets, in any number of stages, in the same order on all ranks. */
#include <tutti/reducer.h>

#include "support/ranks.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const tt_reducer_param params[] = {
    {"a", 1000, TT_F32}, {"b", 7, TT_F32}, {"c", 0, TT_F32}, {"d", 33, TT_F32}, {"e", 300, TT_F32},
};

/* A hook that takes the sum in one call and, with more stages, adds 1 in each of the others by another one. */
typedef struct summing {
    int attached, detached, destroyed, ends, stages;
    int64_t buckets;
    bool refuse;
    int fail_at; /* a stage; 0: none */
    float *ones[8];
    tt_group *group;
} summing;

static tt_status sum_attach(void *state, const tt_bucket *buckets, int64_t count) {
    summing *s = state;
    if (s->refuse)
        return tt_fail(TT_ERR_UNSUPPORTED, "not these buckets");
    s->attached++;
    s->buckets = count;
    s->group = buckets[0].group;
    for (int64_t b = 0; b < count; b++) {
        CHECK(buckets[b].index == b && buckets[b].buckets == count && buckets[b].dtype == TT_F32);
        CHECK_OK(tt_group_alloc((void **)&s->ones[b], s->group, sizeof(float)));
    }
    return TT_OK;
}

static void sum_detach(void *state) {
    summing *s = state;
    s->detached++;
    for (int64_t b = 0; b < s->buckets; b++)
        tt_ignore(tt_group_free(s->group, s->ones[b]));
}

static tt_status sum_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    summing *s = state;
    CHECK(!*work);
    int world = tt_get_world_size(b->group);
    if (s->fail_at && stage == s->fail_at)
        return tt_fail(TT_ERR_UNSUPPORTED, "no such stage here");
    if (stage == 0)
        return tt_all_reduce(b->group, b->data, b->count, b->dtype, TT_SUM, .work = work);
    if (stage < s->stages) {
        CHECK(stage == 1 || *s->ones[b->index] == (float)world); /* that of the stage before */
        *s->ones[b->index] = 1;
        return tt_all_reduce(b->group, s->ones[b->index], 1, TT_F32, TT_SUM, .work = work);
    }
    for (int64_t g = 0; g < b->gradient_count; g++) {
        const tt_bucket_gradient *at = &b->gradients[g];
        CHECK(at->count == params[at->param].count);
        for (int64_t k = 0; k < at->count; k++) {
            float *x = (float *)b->data + at->offset + k;
            *x = *x / (float)world + (float)(s->stages - 1);
        }
    }
    s->ends++;
    return TT_OK;
}

static void sum_destroy(void *state) { ((summing *)state)->destroyed++; }

static const tt_comm_hook one_call = {
    .size = sizeof one_call, .name = "one_call", .next = sum_next, .attach = sum_attach, .detach = sum_detach};
static const tt_comm_hook three_calls = {.size = sizeof three_calls,
                                         .name = "three_calls",
                                         .stages = 3,
                                         .next = sum_next,
                                         .attach = sum_attach,
                                         .detach = sum_detach};

/* One that looks at its buckets, and calls nobody. */
static tt_status picky_attach(void *state, const tt_bucket *buckets, int64_t count) {
    (void)buckets;
    (void)count;
    return ((summing *)state)->refuse ? tt_fail(TT_ERR_UNSUPPORTED, "not mine") : TT_OK;
}

static void picky_detach(void *state) { ((summing *)state)->detached++; }

static const tt_comm_hook picky = {
    .size = sizeof picky, .name = "picky", .next = sum_next, .attach = picky_attach, .detach = picky_detach};

static float value_of(int rank, int step, size_t p, int64_t k) {
    return (float)((rank * 31 + step * 17 + (int)p * 7 + (int)k * 3) % 64 - 32);
}

/* One step, whose parameters become ready in an order of each rank's own; "b" takes no part in odd steps, on rank 0
 * never. */
static void step_through(tt_reducer *r, int rank, int world, int step, float added) {
    for (size_t n = 0; n < COUNT(params); n++) {
        size_t p = (n * 3 + (size_t)(rank + step)) % COUNT(params);
        float *x = tt_reducer_gradient(r, (int64_t)p);
        bool unused = p == 1 && (rank == 0 || step % 2);
        for (int64_t k = 0; k < params[p].count; k++)
            x[k] = unused && !(step % 2) ? 0 : value_of(rank, step, p, k);
        CHECK_OK(unused ? tt_reducer_mark_unused(r, (int64_t)p) : tt_reducer_mark_ready(r, (int64_t)p));
    }
    CHECK_OK(tt_reducer_finish(r));
    for (size_t p = 0; p < COUNT(params); p++) {
        const float *x = tt_reducer_gradient(r, (int64_t)p);
        CHECK(tt_reducer_was_used(r, (int64_t)p) == !(p == 1 && (step % 2 || world == 1)));
        for (int64_t k = 0; k < params[p].count; k++) {
            float sum = 0;
            for (int other = p == 1; other < world; other++)
                sum += value_of(other, step, p, k);
            float expected = sum / (float)world + added;
            if (!tt_reducer_was_used(r, (int64_t)p))
                expected = step % 2 ? value_of(rank, step, p, k) : 0;
            CHECK(x[k] >= expected - 1e-4F && x[k] <= expected + 1e-4F);
        }
    }
}

static void average_by_hooks(tt_group *group, int rank, void *user) {
    static const size_t caps[] = {0, 1, 2048};
    (void)user;
    int world = tt_get_world_size(group);
    for (size_t c = 0; c < COUNT(caps); c++) {
        summing one = {.stages = 1}, three = {.stages = 3};
        tt_reducer *r;
        CHECK_OK(tt_reducer_new(&r, group, params, COUNT(params), .bucket_cap_bytes = caps[c]));
        CHECK_OK(tt_reducer_set_comm_hook(r, &one_call, &one, .destroy = sum_destroy));
        for (int step = 0; step < 4; step++)
            step_through(r, rank, world, step, 0);
        CHECK(one.attached == 1 && one.buckets == tt_reducer_bucket_count(r) && one.ends == 4 * (int)one.buckets);
        CHECK_OK(tt_reducer_set_comm_hook(r, &three_calls, &three, .settings = "of three", .destroy = sum_destroy));
        CHECK(one.detached == 1 && one.destroyed == 1);
        for (int step = 0; step < 4; step++)
            step_through(r, rank, world, step, 2);
        CHECK_OK(tt_reducer_set_comm_hook(r, NULL, NULL));
        CHECK(three.detached == 1 && three.destroyed == 1);
        step_through(r, rank, world, 4, 0);
        CHECK_OK(tt_reducer_set_comm_hook(r, &three_calls, &three));
        tt_reducer_free(r);
        CHECK(three.attached == 2 && three.detached == 2 && three.destroyed == 1);
    }
}

static void hooks_average_in_stages(void **state) {
    (void)state;
    for (int world = 1; world < 5; world++)
        assert_int_equal(run_ranks(world, average_by_hooks, NULL), 0);
}

static void set_unlike(tt_group *group, int rank, void *user) {
    (void)user;
    summing s = {.stages = 1}, other = {.stages = 3};
    tt_reducer *r;
    CHECK_OK(tt_reducer_new(&r, group, params, COUNT(params)));
    CHECK_OK(tt_reducer_set_comm_hook(r, &one_call, &s));
    CHECK(tt_reducer_set_comm_hook(r, rank ? &three_calls : NULL, &other, .settings = rank ? "rank 4" : NULL,
                                   .destroy = sum_destroy) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has communication hook three_calls (rank 4) where rank 0 has communication hook none");
    CHECK(other.destroyed == 1 && s.detached == 0);
    step_through(r, rank, tt_get_world_size(group), 0, 0); /* by the one before */
    CHECK(s.ends > 0);
    other.refuse = true;
    CHECK(tt_reducer_set_comm_hook(r, &three_calls, &other) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("communication hook \"three_calls\": not these buckets");
    CHECK(s.detached == 1 && other.detached == 0);
    step_through(r, rank, tt_get_world_size(group), 1, 0); /* without */
    summing picky_state = {.refuse = rank == 1, .stages = 1};
    CHECK(tt_reducer_set_comm_hook(r, &picky, &picky_state) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has not attached its hook: communication hook \"picky\": not mine where rank 0 has attached");
    CHECK(picky_state.detached == (rank == 0));
    step_through(r, rank, tt_get_world_size(group), 2, 0); /* without, on both */
    tt_reducer_free(r);
}

static void hooks_that_differ_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, set_unlike, NULL), 0);
}

static void misuse_hooks(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    summing s = {.stages = 1, .fail_at = 1};
    tt_reducer *r;
    CHECK_OK(tt_reducer_new(&r, group, params, COUNT(params)));
    CHECK(tt_reducer_set_comm_hook(NULL, &one_call, &s) == TT_ERR_INVALID);
    CHECK(tt_reducer_set_comm_hook(r, &TT_COMM_HOOK(.name = "x"), &s) == TT_ERR_INVALID);
    CHECK_TEXT("`next`");
    CHECK(tt_reducer_set_comm_hook(r, &((tt_comm_hook){.name = "x", .next = sum_next}), &s) == TT_ERR_INVALID);
    CHECK_TEXT("TT_COMM_HOOK()");
    CHECK(tt_reducer_set_comm_hook(r, &TT_COMM_HOOK(.name = "x", .next = sum_next, .stages = -1), &s) ==
          TT_ERR_INVALID);
    CHECK_OK(tt_reducer_mark_ready(r, 4));
    CHECK(tt_reducer_set_comm_hook(r, &one_call, &s) == TT_ERR_STATE);
    CHECK_TEXT("\"e\" is ready");
    for (int p = 0; p < 4; p++)
        CHECK_OK(tt_reducer_mark_ready(r, p));
    CHECK_OK(tt_reducer_finish(r));
    CHECK_OK(tt_reducer_set_comm_hook(r, &one_call, &s));
    tt_status status = TT_OK;
    for (int p = 0; p < (int)COUNT(params) && !status; p++)
        status = tt_reducer_mark_ready(r, p);
    if (!status)
        status = tt_reducer_finish(r);
    CHECK(status == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("communication hook \"one_call\", bucket 0: no such stage here");
    CHECK(tt_reducer_mark_ready(r, 0) == TT_ERR_STATE);
    CHECK(tt_reducer_set_comm_hook(r, &one_call, &s) == TT_ERR_STATE);
    tt_reducer_free(r);
    CHECK(s.detached == 1);
}

static void mistakes_with_hooks_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, misuse_hooks, NULL), 0);
    assert_int_equal(run_ranks(2, misuse_hooks, NULL), 0);
}

/* One rank ends between two stages of a bucket. */
static tt_status leave_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    if (stage == 1 && tt_get_rank(b->group) == 1 && ((summing *)state)->fail_at < 0)
        _exit(0);
    return sum_next(state, b, stage, work);
}

static const tt_comm_hook leaving = {.size = sizeof leaving,
                                     .name = "leaving",
                                     .stages = 2,
                                     .next = leave_next,
                                     .attach = sum_attach,
                                     .detach = sum_detach};

static void die_in_hook(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    summing s = {.stages = 2};
    tt_reducer *r;
    CHECK_OK(tt_reducer_new(&r, group, params, COUNT(params), .bucket_cap_bytes = 1));
    CHECK_OK(tt_reducer_set_comm_hook(r, &leaving, &s));
    for (int step = 0; step < 2; step++) {
        s.fail_at = -step;
        tt_status status = TT_OK;
        for (int p = 0; p < (int)COUNT(params) && !status; p++)
            status = tt_reducer_mark_ready(r, p);
        if (!status)
            status = tt_reducer_finish(r);
        CHECK(step == 0 ? status == TT_OK : status == TT_ERR_PEER && strstr(tt_last_error(), "rank 1"));
    }
    CHECK(tt_reducer_mark_ready(r, 0) == TT_ERR_STATE);
    tt_reducer_free(r);
    CHECK(s.detached == 1);
}

static void a_rank_that_dies_in_a_hook_ends_the_step(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, die_in_hook, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_average_in_stages),
        cmocka_unit_test(hooks_that_differ_are_named),
        cmocka_unit_test(mistakes_with_hooks_are_named),
        cmocka_unit_test(a_rank_that_dies_in_a_hook_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
