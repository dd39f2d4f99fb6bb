/* Passes whose gradients come one after the other, against tt_backward(). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "autograd/backward.h"
#include "parallel/rpc/dist.h"
#include "unit/expect.h"

#include <tutti/functional.h>

enum { LEAVES = 4, NODES = 14, SOURCES = 3, GRAPHS = 60 };

typedef struct graph {
    tt_tensor *leaf[LEAVES], *node[LEAVES + NODES], *weight[SOURCES];
    tt_tensor *end[SOURCES];
} graph;

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* The same graph for the same number. */
static void make_graph(graph *g, uint64_t number) {
    tt_generator *random = tt_generator_new(number + 1);
    uint64_t state = number;
    for (int i = 0; i < LEAVES; i++)
        g->node[i] = g->leaf[i] = tt_requires_grad_(tt_to(tt_randn(TT_SHAPE(3), random), TT_F64), true);
    for (int i = LEAVES; i < LEAVES + NODES; i++) {
        tt_tensor *a = g->node[draw(&state, (uint64_t)i)], *b = g->node[draw(&state, (uint64_t)i)];
        uint64_t kind = draw(&state, 3);
        g->node[i] = kind == 0 ? tt_mul(a, b) : kind == 1 ? tt_add(tt_tanh(a), b) : tt_scale(a, 0.5);
    }
    for (int s = 0; s < SOURCES; s++) {
        g->end[s] = g->node[LEAVES + NODES - 1 - (int)draw(&state, NODES)];
        g->weight[s] = tt_to(tt_randn(TT_SHAPE(3), random), TT_F64);
    }
    tt_generator_free(random);
}

typedef struct finals {
    const graph *g;
    int told[LEAVES];
} finals;

static tt_status count_final(void *user, tt_tensor *leaf, tt_tensor *gradient) {
    finals *f = user;
    (void)gradient;
    for (int i = 0; i < LEAVES; i++)
        f->told[i] += f->g->leaf[i] == leaf;
    return TT_OK;
}

static void compare_leaf(const tt__open_pass *open, tt_tensor *leaf) {
    int64_t at = tt__pointer_map_get(&open->capture.at, leaf);
    tt_tensor *expected = tt_grad(leaf), *got = at < 0 ? NULL : open->capture.grads[at];
    assert_int_equal(!expected, !got);
    for (int64_t k = 0; expected && k < 3; k++) {
        double a = ((double *)tt_tensor_data(expected))[k], b = ((double *)tt_tensor_data(got))[k];
        assert_true(fabs(a - b) <= 1e-12 * fmax(1, fabs(a)));
    }
}

/* Gradients come in an order of their own; no leaf is final before the last that leads to it. */
static void walk_graph(uint64_t number) {
    TT_AUTO_SCOPE;
    graph g;
    make_graph(&g, number);
    tt_node *source[SOURCES];
    for (int s = 0; s < SOURCES; s++) {
        tt_status status = tt_backward(g.end[s], .gradient = g.weight[s], .retain_graph = true);
        assert_int_equal(status, TT_OK);
        source[s] = tt__dist_node(&g.end[s], 1);
    }
    finals finals = {.g = &g};
    tt__open_pass *open = NULL;
    assert_int_equal(tt__open_pass_new(&open, source, SOURCES, false, count_final, &finals), TT_OK);
    for (int k = 0; k < SOURCES; k++) {
        int s = (int)((number + (uint64_t)k) % SOURCES);
        assert_int_equal(tt__open_pass_walk(open), TT_OK);
        assert_false(tt__open_pass_is_done(open));
        assert_int_equal(tt__open_pass_give(open, source[s], &g.weight[s], 1), TT_OK);
    }
    assert_int_equal(tt__open_pass_walk(open), TT_OK);
    assert_true(tt__open_pass_is_done(open));
    for (int i = 0; i < LEAVES; i++) {
        compare_leaf(open, g.leaf[i]);
        assert_int_equal(finals.told[i], tt__pointer_map_get(&open->capture.at, g.leaf[i]) >= 0);
    }
    tt__open_pass_free(open);
    for (int s = 0; s < SOURCES; s++)
        tt__node_unref(source[s]);
}

static void gradients_are_those_of_backward(void **state) {
    (void)state;
    for (uint64_t i = 0; i < GRAPHS; i++)
        walk_graph(i);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_ones(TT_SHAPE(3), TT_F64), true), *y = tt_tanh(x);
    tt_tensor *other = tt_ones(TT_SHAPE(2), TT_F64), *fits = tt_ones(TT_SHAPE(3), TT_F64);
    tt_node *source = tt__dist_node(&y, 1), *stranger = tt__dist_node(&y, 1);
    tt__open_pass *open = NULL;
    assert_int_equal(tt__open_pass_new(&open, &source, 1, false, NULL, NULL), TT_OK);
    assert_int_equal(tt__open_pass_give(open, source, &other, 1), TT_ERR_MISMATCH);
    expect_error(TT_ERR_MISMATCH, "expected a gradient f64 (3) on cpu for number 0, got f64 (2)");
    assert_int_equal(tt__open_pass_give(open, stranger, &fits, 1), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "the pass does not need them");
    assert_int_equal(tt__open_pass_give(open, source, &fits, 1), TT_OK);
    assert_int_equal(tt__open_pass_give(open, source, &fits, 1), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "twice");
    assert_int_equal(tt__open_pass_walk(open), TT_OK);
    tt__open_pass_free(open);
    assert_int_equal(tt__open_pass_new(&open, &stranger, 1, false, NULL, NULL), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "spent");
    tt__node_unref(source);
    tt__node_unref(stranger);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_those_of_backward),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
