/* Parameters that take no part in a pass: against averages computed by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"
#include "support/reducer_trace.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { LEFT = 1, RIGHT = 2, IN = 6, OUT = 3, BATCH = 4, PARAMS = 8, LARGEST = IN * IN };

/* Which heads the next forward takes, whether they are run again in the backward pass, and whether the right one gets
 * no gradient where both are taken. */
static struct {
    unsigned heads;
    bool recompute, one_sided;
} next;

static tt_status add_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    (void)node;
    *out = tt_add(in[0], in[1]);
    return *out ? TT_OK : tt_last_status();
}

static tt_status give_left(tt_node *node) { return tt_node_give(node, 0, tt_node_grad(node, 0)); }

static tt_tensor *head(tt_module *self, const char *name, tt_tensor *x) {
    return tt_module_forward(tt_module_child(self, name), x);
}

static tt_tensor *heads_of(void *self, tt_tensor *const *in, int64_t n) {
    (void)n;
    tt_tensor *sum = NULL;
    if (next.heads & LEFT)
        sum = head(self, "left", in[0]);
    static const tt_function one_sided = {
        .size = sizeof one_sided, .name = "one_sided", .forward = add_forward, .backward = give_left};
    if (sum && next.one_sided && next.heads & RIGHT)
        return tt_apply(&one_sided, NULL, sum, head(self, "right", in[0]));
    if (next.heads & RIGHT)
        sum = sum ? tt_add(sum, head(self, "right", in[0])) : head(self, "right", in[0]);
    return sum ? sum : tt_narrow(in[0], 1, 0, OUT);
}

static tt_tensor *branches_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *stem = tt_tanh(head(self, "stem", x));
    return next.recompute ? tt_recompute(heads_of, self, stem) : heads_of(self, &stem, 1);
}

/* Four layers, of which the last is never used. */
static tt_module *make_branches(uint64_t seed) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Branches", .forward = branches_forward);
    tt_manual_seed(seed);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK(tt_module_add_module(m, "stem", tt_nn_linear(IN, IN)) == TT_OK);
    CHECK(tt_module_add_module(m, "left", tt_nn_linear(IN, OUT)) == TT_OK);
    CHECK(tt_module_add_module(m, "right", tt_nn_linear(IN, OUT)) == TT_OK);
    CHECK(tt_module_add_module(m, "idle", tt_nn_linear(IN, OUT)) == TT_OK);
    return m;
}

static tt_tensor *loss_of(tt_module *m, uint64_t data) {
    tt_manual_seed(data);
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

static tt_status branches_backward(tt_module *m, unsigned heads, uint64_t data) {
    TT_AUTO_SCOPE;
    next.heads = heads;
    return tt_backward(loss_of(m, data));
}

/* ---- the same by hand */

static void forget_gradients(tt_module *m) {
    const tt_named_tensors *p = tt_module_parameters(m);
    for (int64_t i = 0; i < p->count; i++)
        tt_zero_grad(p->tensors[i]);
}

/* What a rank's gradients must be. */
typedef struct book {
    bool defined[PARAMS], used[PARAMS];
    float values[PARAMS][LARGEST];
} book;

/* Add a pass of a module that is not wrapped. */
static void add_pass(book *b, tt_module *twin, unsigned heads, uint64_t data) {
    const tt_named_tensors *p = tt_module_parameters(twin);
    forget_gradients(twin);
    CHECK(branches_backward(twin, heads, data) == TT_OK);
    for (int i = 0; i < PARAMS; i++) {
        const tt_tensor *g = tt_grad(p->tensors[i]);
        if (!g)
            continue;
        const float *values = tt_tensor_data(g);
        for (int64_t k = 0; k < tt_tensor_numel(g); k++)
            b->values[i][k] = (b->defined[i] ? b->values[i][k] : 0) + values[k];
        b->defined[i] = b->used[i] = true;
    }
}

static void average(book *b, tt_group *group) {
    static book all[8];
    int world = tt_get_world_size(group);
    CHECK(tt_all_gather(group, b, all, sizeof *b, TT_U8) == TT_OK);
    for (int i = 0; i < PARAMS; i++) {
        double sum[LARGEST] = {0};
        bool used = false;
        for (int r = 0; r < world; r++) {
            used |= all[r].used[i];
            for (int k = 0; k < LARGEST && all[r].defined[i]; k++)
                sum[k] += all[r].values[i][k];
        }
        b->used[i] = false;
        b->defined[i] |= used;
        for (int k = 0; k < LARGEST && used; k++)
            b->values[i][k] = (float)(sum[k] / world);
    }
}

static void expect_book(const book *b, tt_module *m) {
    const tt_named_tensors *p = tt_module_parameters(m);
    for (int i = 0; i < PARAMS; i++) {
        const tt_tensor *g = tt_grad(p->tensors[i]);
        CHECK(!g == !b->defined[i]);
        const float *values = g ? tt_tensor_data(g) : NULL;
        for (int64_t k = 0; g && k < tt_tensor_numel(g); k++)
            CHECK(fabsf(values[k] - b->values[i][k]) <= 1e-6f);
    }
}

static void forget(book *b, tt_module *m) {
    memset(b->defined, 0, sizeof b->defined);
    forget_gradients(m);
}

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

/* Each rank takes other heads in each pass, forgets its gradients or not, and collects some passes. */
static void any_heads(tt_group *group, int rank, void *user) {
    size_t cap = *(size_t *)user;
    uint64_t state = 1000 + (uint64_t)rank, alike = 5;
    tt_module *model = make_branches(7), *twin = make_branches(7);
    tt_module *ddp = tt_ddp(model, group, .bucket_cap_bytes = cap);
    static book b;
    for (int step = 0; step < 60; step++) {
        uint64_t data = (uint64_t)(step * 100 + rank);
        if (draw(&state, 2))
            forget(&b, ddp);
        next.recompute = draw(&state, 3) == 0;
        next.one_sided = draw(&state, 3) == 0;
        for (uint64_t more = draw(&alike, 3); more; more--) { /* alike, as forward may be collective */
            unsigned heads = (unsigned)draw(&state, 4);
            CHECK(tt_ddp_set_sync(ddp, false) == TT_OK && branches_backward(ddp, heads, data + more) == TT_OK);
            add_pass(&b, twin, heads, data + more);
            if (draw(&state, 4) == 0) /* what was used stays so */
                forget(&b, ddp);
        }
        unsigned heads = (unsigned)draw(&state, 4);
        CHECK(tt_ddp_set_sync(ddp, true) == TT_OK && branches_backward(ddp, heads, data) == TT_OK);
        add_pass(&b, twin, heads, data);
        average(&b, group);
        expect_book(&b, ddp);
    }
    CHECK(!tt_grad(tt_module_parameters(ddp)->tensors[PARAMS - 1])); /* idle's */
    tt_module_free(ddp);
    tt_module_free(model);
    tt_module_free(twin);
}

static void ranks_that_use_other_parameters_get_the_average(void **state) {
    (void)state;
    static size_t caps[] = {0, 1, 200};
    for (size_t i = 0; i < COUNT(caps); i++) {
        assert_int_equal(run_ranks(2, any_heads, &caps[i]), 0);
        assert_int_equal(run_ranks(3, any_heads, &caps[i]), 0);
    }
}

/* ---- when it is known */

/* What is not used stands in the first bucket, which begins all the same while others are computed. */
static void begin_early(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    next.recompute = next.one_sided = false;
    reducer_trace t = {0};
    tt_module *model = make_branches(7), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 1);
    tt_reducer_set_trace(tt_ddp_reducer(ddp), reducer_trace_note, &t);
    CHECK(branches_backward(ddp, RIGHT, 3) == TT_OK);
    size_t first_begin = SIZE_MAX, last_ready = 0;
    for (size_t i = 0; i < t.count; i++) {
        if (t.events[i].kind == TT_REDUCER_BEGIN && first_begin == SIZE_MAX)
            first_begin = i;
        if (t.events[i].kind == TT_REDUCER_READY)
            last_ready = i;
    }
    CHECK(t.count == 3 * PARAMS && first_begin < last_ready);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void unused_parameters_keep_no_bucket_waiting(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, begin_early, NULL), 0);
}

/* ---- a pass in two parts, of which the second gives the rest */

static void defer(tt_group *group, int rank, void *user) {
    (void)user;
    next.recompute = next.one_sided = false;
    tt_module *model = make_branches(7), *twin = make_branches(7), *ddp = tt_ddp(model, group);
    static book b;
    for (int step = 0; step < 3; step++) {
        int scope = tt_scope_begin();
        uint64_t data = (uint64_t)(step * 2 + rank);
        unsigned heads = rank ? LEFT : RIGHT;
        tt_deferred_backward *later;
        forget(&b, ddp);
        next.heads = heads;
        tt_tensor *loss = loss_of(ddp, data);
        tt_tensor *now[] = {tt_module_parameters(ddp)->tensors[0]};
        CHECK(tt_backward(loss, .inputs = now, .input_count = 1, .deferred = &later) == TT_OK);
        CHECK(tt_backward_deferred(later) == TT_OK);
        tt_deferred_backward_free(later);
        tt_scope_end(scope);
        add_pass(&b, twin, heads, data);
        average(&b, group);
        expect_book(&b, ddp);
    }
    tt_module_free(ddp);
    tt_module_free(model);
    tt_module_free(twin);
}

static void what_is_left_for_later_is_waited_for(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, defer, NULL), 0);
}

/* ---- frozen */

static void freeze(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    next.recompute = next.one_sided = false;
    tt_module *model = make_branches(7), *ddp = tt_ddp(model, group);
    tt_tensor *left = tt_module_parameters(ddp)->tensors[2];
    CHECK(tt_requires_grad_(left, false));
    CHECK(branches_backward(ddp, LEFT, 3) == TT_OK && !tt_grad(left));
    CHECK(tt_requires_grad_(left, true));
    CHECK(branches_backward(ddp, LEFT, 3) == TT_ERR_STATE);
    CHECK(strstr(tt_last_error(), "\"left.weight\" was frozen") && strstr(tt_last_error(), "wrap the module again"));
    CHECK(branches_backward(ddp, RIGHT, 3) == TT_ERR_STATE && strstr(tt_last_error(), "an earlier step failed"));
    tt_module_free(ddp);
    tt_module_free(model);
}

static void a_parameter_that_is_trained_again_is_no_unused_one(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, freeze, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_use_other_parameters_get_the_average),
        cmocka_unit_test(unused_parameters_keep_no_bucket_waiting),
        cmocka_unit_test(what_is_left_for_later_is_waited_for),
        cmocka_unit_test(a_parameter_that_is_trained_again_is_no_unused_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
