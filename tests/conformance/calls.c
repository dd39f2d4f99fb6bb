/* Barriers, groups, works, refusals. */
#include "conformance.h"

void test_barrier(ctx *c) {
    for (int i = 0; i < 20; i++) {
        next_case(c);
        CALL(c, tt_barrier, c->group);
    }
}

static void sum_in(tt_group *group, int want) {
    int32_t sum = tt_get_global_rank(group, tt_get_rank(group));
    CHECK_OK(tt_all_reduce(group, &sum, 1, TT_I32, TT_SUM));
    CHECK(sum == want);
}

/* All but rank 0, in reverse. */
static void reversed(ctx *c) {
    int ranks[MAX_RANKS], n = 0, sum = 0;
    tt_group *sub = NULL;
    for (int r = c->world - 1; r > 0; r--, n++) {
        ranks[n] = r;
        sum += r;
    }
    if (!n)
        ranks[n++] = 0;
    CHECK_OK(tt_new_group(&sub, c->group, ranks, (size_t)n));
    CHECK((sub != NULL) == (c->rank > 0 || c->world == 1));
    if (sub) {
        CHECK(tt_get_world_size(sub) == n && tt_get_global_rank(sub, tt_get_rank(sub)) == c->rank);
        CHECK(tt_get_group_rank(sub, c->rank) == (c->world == 1 ? 0 : c->world - 1 - c->rank));
        CHECK(tt_get_global_rank(sub, n) == -1 && tt_get_group_rank(sub, c->world) == -1);
        CHECK(!strcmp(tt_get_backend(sub), tt_get_backend(c->group)));
        sum_in(sub, sum);
        int32_t first = c->rank;
        CHECK_OK(tt_broadcast(sub, &first, 1, TT_I32, 0));
        CHECK(first == ranks[0]);
    }
    sum_in(c->group, c->world * (c->world - 1) / 2);
    tt_destroy_process_group(sub);
}

/* Even and odd ranks, numbered backwards; the last rank of three or more is in none. */
static void split(ctx *c) {
    bool out = c->world > 2 && c->rank == c->world - 1;
    tt_group *half = NULL, *again = NULL;
    int sum = 0, n = 0;
    CHECK_OK(tt_group_split(&half, c->group, out ? -1 : c->rank % 2, -c->rank));
    CHECK((half == NULL) == out);
    if (out)
        return;
    for (int r = 0; r < c->world; r++)
        if (r % 2 == c->rank % 2 && !(c->world > 2 && r == c->world - 1)) {
            sum += r;
            n++;
        }
    CHECK(tt_get_world_size(half) == n);
    for (int r = 1; r < n; r++)
        CHECK(tt_get_global_rank(half, r) < tt_get_global_rank(half, r - 1));
    sum_in(half, sum);
    CHECK_OK(tt_new_group(&again, half, &(int){0}, 1)); /* a group of a group */
    CHECK((again != NULL) == (tt_get_rank(half) == 0));
    if (again)
        sum_in(again, c->rank);
    tt_destroy_process_group(half); /* which its child outlives */
    if (again)
        sum_in(again, c->rank);
    tt_destroy_process_group(again);
}

void test_groups(ctx *c) {
    reversed(c);
    split(c);
    sum_in(c->group, c->world * (c->world - 1) / 2);
}

/* ---- works: several at once, waited for in another order */

void test_works(ctx *c) {
    enum { WORKS = 6 };
    static const size_t counts[WORKS] = {50001, 3, 2000, 0, 1, 70001};
    for (int round = 0; round < 4; round++) {
        tt_work *works[WORKS];
        size_t at = 0;
        float *x = buffer(c, 0);
        next_case(c);
        x = buffer(c, 0);
        for (int r = 0; r < c->world; r++)
            fill(c->inputs[r], 0, 150000, TT_F32, TT_AVG, r, c->cases);
        memcpy(x, c->inputs[c->rank], 150000 * sizeof *x);
        for (int w = 0; w < WORKS; at += counts[w++])
            CHECK_OK(tt_all_reduce(c->group, x + at, counts[w], TT_F32, TT_AVG, .work = &works[w]));
        if (round % 2)
            CHECK_OK(tt_work_wait(works[3]));
        CHECK_OK(tt_barrier(c->group)); /* comes after them */
        for (int w = 0; w < WORKS; w++)
            CHECK(tt_work_is_completed(works[w]));
        CHECK_OK(tt_work_wait_all(works, WORKS));
        for (int w = 0; w < WORKS; w++)
            tt_work_free(works[w]);
        CHECK(matches(x, c->inputs, c->world, 0, at, TT_F32, TT_AVG, c->native));
    }
}

/* Refused before anything is sent: the group goes on. */
void test_refusals(ctx *c) {
    int32_t x[4] = {0};
    float y[4] = {0};
    CHECK(tt_all_reduce(c->group, x, 4, TT_BOOL, TT_AVG) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("average");
    CHECK(tt_all_reduce(c->group, y, 4, TT_F32, TT_BXOR) == TT_ERR_UNSUPPORTED);
    CHECK(tt_reduce(c->group, x, 4, TT_I32, TT_PREMUL_SUM, 0) == TT_ERR_UNSUPPORTED);
    CHECK(tt_broadcast(c->group, x, 4, TT_I32, c->world) == TT_ERR_INVALID);
    CHECK_TEXT("root");
    CHECK(tt_all_reduce(c->group, NULL, 4, TT_I32, TT_SUM) == TT_ERR_INVALID);
    sum_in(c->group, c->world * (c->world - 1) / 2);
}
