/* Parameters that a wrapper leaves out, and those that it averages last. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"
#include "support/reducer_trace.h"

enum { IN = 6, OUT = 3, BATCH = 4, STEPS = 20, MOST = 64 };

/* ---- a model: a cell that is used three times, each time in a pass of its own if `recompute`; a head; running sums */

static bool recompute;

static tt_tensor *cell_forward(void *self, tt_tensor *const *in, int64_t n) {
    return (void)n, tt_tanh(tt_module_forward(tt_module_child(self, "cell"), in[0]));
}

static tt_tensor *recurrent_forward(tt_module *self, tt_tensor *x) {
    for (int i = 0; i < 3; i++)
        x = recompute ? tt_recompute(cell_forward, self, x) : cell_forward(self, &x, 1);
    return tt_module_forward(tt_module_child(self, "head"), x);
}

static tt_module *make_recurrent(uint64_t seed) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Recurrent", .forward = recurrent_forward);
    TT_AUTO_SCOPE;
    tt_manual_seed(seed);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "cell", tt_nn_linear(IN, IN)));
    CHECK_OK(tt_module_add_module(m, "head", tt_nn_linear(IN, OUT)));
    CHECK_OK(tt_module_register_buffer(m, "mine", tt_full(TT_SHAPE(2), TT_F32, (double)seed)));
    CHECK_OK(tt_module_register_buffer(m, "shared", tt_full(TT_SHAPE(2), TT_F32, (double)seed)));
    return m;
}

static tt_status pass_through(tt_module *m, uint64_t data) {
    TT_AUTO_SCOPE;
    tt_manual_seed(data);
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    x = recompute ? tt_requires_grad_(x, true) : x; /* what is run again is recorded for its inputs' sake */
    return tt_backward(tt_mse_loss(tt_module_forward(m, x), y));
}

static tt_tensor *parameter(tt_module *m, const char *name) {
    const tt_named_tensors *p = tt_module_parameters(m);
    for (int64_t i = 0; i < p->count; i++)
        if (!strcmp(p->names[i], name))
            return p->tensors[i];
    CHECK(!"a parameter of that name");
    return NULL;
}

static bool is_same_here(const tt_tensor *a, const tt_tensor *b) {
    return tt_tensor_numel(a) == tt_tensor_numel(b) &&
           !memcmp(tt_tensor_data(a), tt_tensor_data(b), (size_t)tt_tensor_numel(a) * sizeof(float));
}

/* Does each rank have the same values? */
static bool is_same_everywhere(tt_group *group, const tt_tensor *x) {
    static float all[4][MOST];
    int64_t n = tt_tensor_numel(x);
    float mine[MOST] = {0};
    memcpy(mine, tt_tensor_data(x), (size_t)n * sizeof *mine);
    CHECK_OK(tt_all_gather(group, mine, all, MOST, TT_F32));
    bool same = true;
    for (int r = 1; r < tt_get_world_size(group); r++)
        same = same && !memcmp(all[0], all[r], sizeof all[0]);
    return same;
}

/* ---- left out */

static void ignore(tt_group *group, int rank, void *user) {
    (void)user;
    recompute = false;
    tt_module *model = make_recurrent(7 + (uint64_t)rank), *twin = make_recurrent(7 + (uint64_t)rank);
    tt_module *ddp = tt_ddp(model, group, .ignored = TT_NAMES("head.bias", "cell", "mine"));
    CHECK(ddp);
    CHECK(is_same_here(parameter(ddp, "head.bias"), parameter(twin, "head.bias")));
    CHECK(is_same_here(parameter(ddp, "cell.weight"), parameter(twin, "cell.weight")));
    CHECK(!is_same_everywhere(group, parameter(ddp, "cell.bias")));
    CHECK(is_same_everywhere(group, parameter(ddp, "head.weight")));
    CHECK(tt_tensor_f32(tt_module_buffers(ddp)->tensors[0])[0] == (float)(7 + rank));
    CHECK(tt_tensor_f32(tt_module_buffers(ddp)->tensors[1])[0] == 7);

    /* What is averaged is the head's weight alone; the others' gradients are this rank's. */
    CHECK(tt_copy(parameter(twin, "head.weight"), parameter(ddp, "head.weight")) == TT_OK);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1), *twins = tt_sgd(tt_module_parameters(twin), 0.1);
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(sgd);
        tt_optimizer_zero_grad(twins);
        CHECK_OK(pass_through(ddp, (uint64_t)(step * 10 + rank)));
        CHECK_OK(pass_through(twin, (uint64_t)(step * 10 + rank)));
        CHECK(is_same_here(tt_grad(parameter(ddp, "cell.weight")), tt_grad(parameter(twin, "cell.weight"))));
        CHECK(is_same_here(tt_grad(parameter(ddp, "head.bias")), tt_grad(parameter(twin, "head.bias"))));
        CHECK_OK(tt_tensor_all_reduce(group, tt_grad(parameter(twin, "head.weight")), TT_AVG));
        CHECK(is_same_here(tt_grad(parameter(ddp, "head.weight")), tt_grad(parameter(twin, "head.weight"))));
        CHECK_OK(tt_optimizer_step(sgd));
        CHECK_OK(tt_optimizer_step(twins));
        tt_tensor_f32(tt_module_buffers(ddp)->tensors[0])[1] = (float)(100 + rank); /* stays each rank's own */
    }
    CHECK(tt_tensor_f32(tt_module_buffers(ddp)->tensors[0])[1] == (float)(100 + rank));
    CHECK(tt_reducer_bucket_count(tt_ddp_reducer(ddp)) == 1);
    CHECK_OK(tt_f16_hook(ddp)); /* hooks know parameters by their numbers among those that are averaged */
    CHECK_OK(pass_through(ddp, 1));
    tt_optimizer_free(sgd);
    tt_optimizer_free(twins);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_module_free(twin);
}

static void what_is_ignored_stays_each_ranks_own(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, ignore, NULL), 0);
    assert_int_equal(run_ranks(3, ignore, NULL), 0);
}

/* Parts of one model may be averaged over different groups, each by a wrapper that leaves the others out: here the cell
 * over ranks 0 and 1, the head over all three. */
static void wrap_twice(tt_group *group, int rank, void *user) {
    (void)user;
    recompute = false;
    tt_module *model = make_recurrent(7 + (uint64_t)rank);
    tt_group *pair = NULL;
    CHECK_OK(tt_new_group(&pair, group, ((int[]){0, 1}), 2));
    tt_module *inner = pair ? tt_ddp(tt_module_child(model, "cell"), pair) : NULL;
    CHECK(!pair == !inner);
    CHECK(!tt_ddp(model, group, .ignored = TT_NAMES("head"))); /* its cell belongs to the other wrapper on two ranks */
    tt_module *outer = tt_ddp(model, group, .ignored = TT_NAMES("cell"));
    CHECK(outer);
    CHECK_OK(pass_through(outer, (uint64_t)rank));
    CHECK(is_same_everywhere(group, tt_grad(parameter(model, "head.weight"))));
    CHECK(!is_same_everywhere(group, tt_grad(parameter(model, "cell.weight"))));
    CHECK(!pair || is_same_everywhere(pair, tt_grad(parameter(model, "cell.weight"))));
    tt_module_free(outer);
    tt_module_free(inner);
    tt_destroy_process_group(pair);
    tt_module_free(model);
}

/* ---- names that don't fit */

static void fail_by_names(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_recurrent(7);
    CHECK(!tt_ddp(model, group, .ignored = TT_NAMES("head", "hea")) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT(".ignored has \"hea\", which is no parameter, buffer or child of the module");
    CHECK(!tt_ddp(model, group, .delay_all_reduce = TT_NAMES("mine")) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT(".delay_all_reduce has \"mine\"");
    CHECK(!tt_ddp(model, group, .ignored = TT_NAMES("cell"), .delay_all_reduce = TT_NAMES("cell.bias")));
    CHECK(tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("expected parameter \"cell.bias\" in .ignored or in .delay_all_reduce, got it in both");
    CHECK(!tt_ddp(model, group, .ignored = TT_NAMES(rank == 1 ? "none" : "cell")));
    CHECK(tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has");
    CHECK_TEXT("in .ignored the unknown none where rank 0 has");
    CHECK(!tt_ddp(model, group, .ignored = TT_NAMES(rank == 1 ? "cell" : "cell.bias")));
    CHECK(tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has parameter 0 \"cell.weight\" in .ignored where rank 0 has parameter 0 \"cell.weight\" f32");
    CHECK(!tt_ddp(model, group, .delay_all_reduce = TT_NAMES(rank == 1 ? "cell" : "head")));
    CHECK(tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("\"cell.weight\" f32 (6, 6) (.delay_all_reduce)");
    CHECK(!tt_ddp(model, group, .ignored = TT_NAMES("cell", "head")) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("has no parameter that requires a gradient and isn't in .ignored");
    CHECK(!tt_ddp(model, group, .virtual_ranks = 4, .ignored = TT_NAMES("cell")));
    CHECK(tt_last_status() == TT_ERR_UNSUPPORTED);
    tt_module *ddp = tt_ddp(model, group); /* none of it has left anything */
    CHECK(ddp && pass_through(ddp, 1) == TT_OK);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void names_that_do_not_fit_are_one_error_on_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, fail_by_names, NULL), 0);
    assert_int_equal(run_ranks(3, wrap_twice, NULL), 0);
}

/* ---- averaged last */

/* Parts are added up in another order where each comes from a pass of its own. */
static void expect_same_gradients(tt_module *a, tt_module *b) {
    const tt_named_tensors *p = tt_module_parameters(a), *q = tt_module_parameters(b);
    for (int64_t i = 0; i < p->count; i++) {
        const float *x = tt_tensor_f32(tt_grad(p->tensors[i])), *y = tt_tensor_f32(tt_grad(q->tensors[i]));
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            CHECK(fabsf(x[k] - y[k]) <= 1e-6f);
    }
}

static void check_order(const reducer_trace *t, tt_reducer *r) {
    size_t last_ready = 0, delayed_begin = 0;
    for (size_t i = 0; i < t->count; i++) {
        const tt_reducer_event *e = &t->events[i];
        if (e->kind == TT_REDUCER_READY && e->index >= 2) /* the head's */
            last_ready = i;
        if (e->kind == TT_REDUCER_BEGIN && e->index == tt_reducer_bucket_of(r, 0))
            delayed_begin = i;
    }
    CHECK(delayed_begin > last_ready);
    CHECK(tt_reducer_bucket_of(r, 0) > tt_reducer_bucket_of(r, 2));
    CHECK(tt_reducer_bucket_of(r, 0) > tt_reducer_bucket_of(r, 3));
}

/* Gradients are those of averaging at once, where that can be done: without recomputing. */
static void delay(tt_group *group, int rank, void *user) {
    size_t cap = *(size_t *)user;
    tt_module *model = make_recurrent(7), *other = make_recurrent(7);
    tt_module *late = tt_ddp(model, group, .bucket_cap_bytes = cap, .delay_all_reduce = TT_NAMES("cell"));
    tt_module *plain = tt_ddp(other, group, .bucket_cap_bytes = cap);
    tt_optimizer *o = tt_sgd(tt_module_parameters(late), 0.05);
    tt_optimizer *p = tt_sgd(tt_module_parameters(plain), 0.05);
    for (int step = 0; step < STEPS; step++) {
        reducer_trace t = {0};
        tt_reducer_set_trace(tt_ddp_reducer(late), reducer_trace_note, &t);
        tt_optimizer_zero_grad(o);
        tt_optimizer_zero_grad(p);
        for (int last = 0; last < 2; last++) {
            uint64_t data = (uint64_t)(step * 20 + last * 10 + rank);
            CHECK_OK(tt_ddp_set_sync(late, last));
            CHECK_OK(tt_ddp_set_sync(plain, last));
            recompute = true;
            CHECK_OK(pass_through(late, data));
            recompute = false;
            CHECK_OK(pass_through(plain, data));
        }
        check_order(&t, tt_ddp_reducer(late));
        expect_same_gradients(late, plain);
        CHECK(is_same_everywhere(group, tt_grad(parameter(late, "cell.weight"))));
        tt_reducer_set_trace(tt_ddp_reducer(late), NULL, NULL);
        CHECK_OK(tt_optimizer_step(o));
        CHECK_OK(tt_optimizer_step(p));
    }
    tt_optimizer_free(o);
    tt_optimizer_free(p);
    tt_module_free(late);
    tt_module_free(plain);
    tt_module_free(model);
    tt_module_free(other);
}

/* What such a parameter gets else: an error, not half an average. */
static void part_twice(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_recurrent(7), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 1);
    recompute = true;
    CHECK(pass_through(ddp, (uint64_t)rank) == TT_ERR_STATE);
    CHECK_TEXT("got its gradient twice in a step");
    tt_module_free(ddp);
    tt_module_free(model);
}

static void what_is_delayed_is_averaged_last(void **state) {
    (void)state;
    static size_t caps[] = {0, 1, 100};
    assert_int_equal(run_ranks(2, part_twice, NULL), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(run_ranks(2, delay, &caps[i]), 0);
        assert_int_equal(run_ranks(3, delay, &caps[i]), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_ignored_stays_each_ranks_own),
        cmocka_unit_test(names_that_do_not_fit_are_one_error_on_all_ranks),
        cmocka_unit_test(what_is_delayed_is_averaged_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
