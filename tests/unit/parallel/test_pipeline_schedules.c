/* Pipelines' schedules, on paper: every action once, in an order that never stops, and as idle as the papers say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/pipeline/pipeline_own.h"

static const tt_pipeline_schedule kinds[] = {TT_PIPELINE_1F1B, TT_PIPELINE_GPIPE, TT_PIPELINE_INTERLEAVED_1F1B,
                                             TT_PIPELINE_ZERO_BUBBLE};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Each stage F, I and W; B is I and W together. */
static tt__stage_cost *costs_of(int64_t stages, double f, double i, double w) {
    tt__stage_cost *costs = calloc((size_t)stages, sizeof *costs);
    assert_non_null(costs);
    for (int64_t s = 0; s < stages; s++)
        costs[s] = (tt__stage_cost){{f, i + w, i, w}};
    return costs;
}

static tt__simulated simulate_or_fail(const tt__schedule *s, double f, double i, double w) {
    tt__simulated simulated = {0};
    tt__stage_cost *costs = costs_of(s->ranks * s->chunks, f, i, w);
    tt_status status = tt__schedule_simulate(s, costs, 0, &simulated);
    if (status)
        print_error("%lld ranks, %lld chunks, %lld micro-batches: %s\n", (long long)s->ranks, (long long)s->chunks,
                    (long long)s->micros, tt_last_error());
    assert_int_equal(status, TT_OK);
    free(costs);
    return simulated;
}

static bool is_allowed(tt_pipeline_schedule kind, int64_t ranks, int64_t chunks, int64_t micros) {
    bool several = kind == TT_PIPELINE_INTERLEAVED_1F1B || kind == TT_PIPELINE_ZERO_BUBBLE;
    if (chunks > 1)
        return several && micros % ranks == 0;
    return kind == TT_PIPELINE_GPIPE || micros >= ranks;
}

static void all_schedules_are_whole_and_never_stop(void **state) {
    (void)state;
    int made = 0;
    for (int k = 0; k < KINDS; k++)
        for (int64_t ranks = 1; ranks <= 9; ranks++)
            for (int64_t chunks = 1; chunks <= 4; chunks++)
                for (int64_t micros = 1; micros <= 27; micros++) {
                    tt__schedule s;
                    tt_status status = tt__schedule_make(&s, kinds[k], ranks, chunks, micros);
                    assert_int_equal(status == TT_OK, is_allowed(kinds[k], ranks, chunks, micros));
                    if (!status) {
                        assert_int_equal(tt__schedule_check(&s, false), TT_OK);
                        simulate_or_fail(&s, 1, 1, 1);
                        simulate_or_fail(&s, 3, 0.5, 2);
                        made++;
                    }
                    tt__schedule_free(&s);
                    assert_int_equal(tt__schedule_make_forward(&s, ranks, chunks, micros), TT_OK);
                    assert_int_equal(tt__schedule_check(&s, true), TT_OK);
                    simulate_or_fail(&s, 1, 0, 0);
                    tt__schedule_free(&s);
                }
    assert_true(made > 1000);
}

/* The spans of the papers' formulas, in units of F = I = W = 1, B = 2. */
static void they_are_as_idle_as_the_papers_say(void **state) {
    (void)state;
    for (int64_t ranks = 1; ranks <= 8; ranks++)
        for (int64_t micros = 2 * ranks; micros <= 32; micros += ranks) {
            static const struct {
                tt_pipeline_schedule kind;
                int64_t chunks;
            } cases[] = {{TT_PIPELINE_GPIPE, 1},
                         {TT_PIPELINE_1F1B, 1},
                         {TT_PIPELINE_INTERLEAVED_1F1B, 2},
                         {TT_PIPELINE_INTERLEAVED_1F1B, 3},
                         {TT_PIPELINE_ZERO_BUBBLE, 1}};
            for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
                tt__schedule s;
                assert_int_equal(tt__schedule_make(&s, cases[c].kind, ranks, cases[c].chunks, micros), TT_OK);
                tt__simulated simulated = simulate_or_fail(&s, 1, 1, 1);
                double work = 3.0 * (double)(micros * cases[c].chunks), idle = (double)(ranks - 1) * 3;
                if (cases[c].kind == TT_PIPELINE_ZERO_BUBBLE)
                    idle = (double)(ranks - 1); /* F + I - W */
                assert_float_equal(simulated.span, work + idle, 1e-9);
                assert_float_equal(simulated.idle_share, idle / (work + idle), 1e-9);
                if (cases[c].kind == TT_PIPELINE_1F1B || cases[c].kind == TT_PIPELINE_ZERO_BUBBLE)
                    assert_int_equal(simulated.most_held, ranks);
                if (cases[c].kind == TT_PIPELINE_GPIPE)
                    assert_int_equal(simulated.most_held, micros);
                tt__schedule_free(&s);
            }
        }
}

/* 1F1B on 4 ranks with 8 micro-batches, as the paper's figure has it. */
static void one_forward_one_backward_is_the_papers_figure(void **state) {
    (void)state;
    static const char *const expected[] = {
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"};
    tt__schedule s;
    assert_int_equal(tt__schedule_make(&s, TT_PIPELINE_1F1B, 4, 1, 8), TT_OK);
    for (int r = 0; r < 4; r++) {
        char text[256] = "";
        for (int64_t i = 0; i < s.lists[r].count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c%d", i ? " " : "",
                     tt__act_letter(s.lists[r].acts[i].kind), (int)s.lists[r].acts[i].micro);
        assert_string_equal(text, expected[r]);
    }
    tt__schedule_free(&s);
}

/* Change a good schedule, and see it refused. */
static void broken_schedules_are_found(void **state) {
    (void)state;
    tt__schedule s;
    tt__simulated simulated = {0};
    tt__stage_cost *costs = costs_of(2, 1, 1, 1);
    assert_int_equal(tt__schedule_make(&s, TT_PIPELINE_1F1B, 2, 1, 4), TT_OK);
    tt__act *first = s.lists[0].acts, kept = first[0];

    first[0].micro = 1;
    assert_int_equal(tt__schedule_check(&s, false), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "rank 0, F of micro-batch 1, chunk 0: out of the order"));
    first[0] = kept;

    s.lists[1].count--;
    assert_int_equal(tt__schedule_check(&s, false), TT_ERR_INVALID);
    assert_non_null(
        strstr(tt_last_error(), "rank 1, chunk 0: expected 4 forwards and as many backwards, got 4 F, 3 B"));
    assert_int_equal(tt__schedule_simulate(&s, costs, 0, &simulated), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "wait for each other: rank 0 before B of micro-batch 3"));
    s.lists[1].count++;

    /* Rank 0 wants its first backward before it has sent enough for rank 1 to begin it. */
    tt__act *second = s.lists[1].acts;
    tt__act f0 = second[0];
    second[0] = (tt__act){TT__FORWARD, 0, 1};
    second[2] = f0;
    assert_int_equal(tt__schedule_check(&s, false), TT_ERR_INVALID);
    second[0] = f0;
    second[2] = (tt__act){TT__FORWARD, 0, 1};
    tt__act a = first[1];
    first[1] = first[2];
    first[2] = a;
    assert_int_equal(tt__schedule_check(&s, false), TT_OK); /* F0 B0 F1: slower, but it runs */
    assert_int_equal(tt__schedule_simulate(&s, costs, 0, &simulated), TT_OK);
    first[2] = first[0];
    assert_int_equal(tt__schedule_check(&s, false), TT_ERR_INVALID);
    tt__schedule_free(&s);
    free(costs);
}

static void refusals_say_what_is_needed(void **state) {
    (void)state;
    static const struct {
        tt_pipeline_schedule kind;
        int64_t ranks, chunks, micros;
        const char *text;
    } cases[] = {
        {TT_PIPELINE_GPIPE, 2, 1, 0, "expected at least 1 micro-batch"},
        {TT_PIPELINE_1F1B, 4, 1, 3, "1F1B on 4 ranks: expected at least as many micro-batches, got 3"},
        {TT_PIPELINE_ZERO_BUBBLE, 4, 1, 3, "zero-bubble on 4 ranks: expected at least as many micro-batches, got 3"},
        {TT_PIPELINE_INTERLEAVED_1F1B, 4, 2, 6, "a multiple of the 4 ranks, got 6"},
        {TT_PIPELINE_1F1B, 2, 2, 4, "1F1B: expected one stage a rank, got 2"},
        {TT_PIPELINE_GPIPE, 2, -1, 4, "GPipe: expected one stage a rank, got -1"},
        {TT_PIPELINE_INTERLEAVED_1F1B, 2, 0, 4, "interleaved 1F1B: expected 1 to 256 stages a rank, got 0"},
        {(tt_pipeline_schedule)9, 2, 1, 4, "expected a schedule, TT_PIPELINE_..., got 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__schedule s;
        assert_int_equal(tt__schedule_make(&s, cases[i].kind, cases[i].ranks, cases[i].chunks, cases[i].micros),
                         TT_ERR_INVALID);
        if (!strstr(tt_last_error(), cases[i].text))
            fail_msg("expected \"%s\" in: %s", cases[i].text, tt_last_error());
        tt__schedule_free(&s);
    }
}

/* ---- splits ---- */

static double worst_of(const double *costs, const int64_t *first, int64_t stages) {
    double worst = 0;
    for (int64_t s = 0; s < stages; s++) {
        double sum = 0;
        for (int64_t p = first[s]; p < first[s + 1]; p++)
            sum += costs[p];
        worst = sum > worst ? sum : worst;
    }
    return worst;
}

/* The best of all splits, tried one by one. */
static double best_by_trying(const double *costs, int64_t parts, int64_t stages, int64_t *first, int64_t stage) {
    if (stage == stages) {
        first[stages] = parts;
        return first[stages - 1] < parts ? worst_of(costs, first, stages) : 1e300;
    }
    double best = 1e300;
    for (int64_t p = first[stage - 1] + 1; p < parts; p++) {
        first[stage] = p;
        double worst = best_by_trying(costs, parts, stages, first, stage + 1);
        best = worst < best ? worst : best;
    }
    return best;
}

static void splits_by_cost_are_the_best_ones(void **state) {
    (void)state;
    uint32_t draw = 7;
    for (int round = 0; round < 200; round++) {
        double costs[9];
        int64_t first[10], tried[10] = {0};
        int64_t parts = 2 + round % 8, stages = 1 + round % (parts < 5 ? parts : 5);
        for (int64_t p = 0; p < parts; p++) {
            draw = draw * 1664525U + 1013904223U;
            costs[p] = (draw >> 24) % 16;
        }
        assert_int_equal(tt__split_by_cost(costs, parts, stages, first), TT_OK);
        assert_int_equal(first[0], 0);
        assert_int_equal(first[stages], parts);
        for (int64_t s = 0; s < stages; s++)
            assert_true(first[s] < first[s + 1]);
        assert_float_equal(worst_of(costs, first, stages), best_by_trying(costs, parts, stages, tried, 1), 1e-9);
    }
}

/* A rank's stages together: 7 parts of cost 1 and one of 3 on two ranks with two stages each can be halved. */
static void splits_balance_ranks_of_several_stages(void **state) {
    (void)state;
    static const double costs[] = {3, 1, 1, 1, 1, 1, 1, 1};
    const tt__split_sizes sizes = {.parts = 8, .stages = 4, .ranks = 2, .micros = 16};
    int64_t first[5];
    double rank[2] = {0, 0};
    assert_int_equal(tt__split_by_schedule(costs, &sizes, first), TT_OK);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[4], 8);
    for (int s = 0; s < 4; s++) {
        assert_true(first[s] < first[s + 1]);
        for (int64_t p = first[s]; p < first[s + 1]; p++)
            rank[s % 2] += costs[p];
    }
    assert_float_equal(rank[0], 5, 1e-9);
    assert_float_equal(rank[1], 5, 1e-9);
}

static void micro_batches_are_tensor_splits(void **state) {
    (void)state;
    static const int64_t begins[] = {0, 4, 7, 10};
    for (int m = 0; m < 4; m++)
        assert_int_equal(tt__micro_begin(10, 3, m), begins[m]);
    for (int m = 0; m <= 4; m++)
        assert_int_equal(tt__micro_begin(2, 4, m), m < 2 ? m : 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schedules_are_whole_and_never_stop),
        cmocka_unit_test(they_are_as_idle_as_the_papers_say),
        cmocka_unit_test(one_forward_one_backward_is_the_papers_figure),
        cmocka_unit_test(broken_schedules_are_found),
        cmocka_unit_test(refusals_say_what_is_needed),
        cmocka_unit_test(splits_by_cost_are_the_best_ones),
        cmocka_unit_test(splits_balance_ranks_of_several_stages),
        cmocka_unit_test(micro_batches_are_tensor_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
