/* Local steps need no other rank; what one rank has wrong, all hear of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { STEPS = 6, PERIOD = 3 };

typedef struct trained {
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_model_averager *averager;
} trained;

static void step(const trained *t) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(t->sgd);
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(t->ddp, tt_ones(TT_SHAPE(2, 4), TT_F32)))));
    CHECK_OK(tt_optimizer_step(t->sgd));
}

/* The ranks of the lower pair tell when they are through a local step; those of the upper begin it then. With `alone`
 * each pair is of one rank. */
static void take_turns(tt_store *store, const trained *t, int rank, int lower) {
    for (int i = 0; i < STEPS; i++) {
        char key[40];
        bool local = i > 0; /* before the first the buckets are made anew, by all ranks */
        for (int r = 0; r < lower && rank >= lower && local; r++) {
            snprintf(key, sizeof key, "step %d done by %d", i, r);
            CHECK_OK(tt_store_wait(store, &(const char *){key}, 1, PATIENCE_MS));
        }
        step(t);
        snprintf(key, sizeof key, "step %d done by %d", i, rank);
        CHECK_OK(tt_store_set(store, key, "", 0));
        CHECK_OK(tt_model_averager_step(t->averager));
    }
}

static int local_body(tt_store *store, int rank, int world, void *arg) {
    const bool alone = *(const bool *)arg;
    tt_group *group = join_group(store, rank, world), *part = NULL;
    CHECK_OK(tt_group_split(&part, group, alone ? rank : rank / 2, rank));
    trained t = {.model = tt_nn_linear(4, 4)};
    t.ddp = tt_ddp(t.model, group);
    t.sgd = tt_sgd(tt_module_parameters(t.ddp), 0.1);
    CHECK_OK(tt_post_local_sgd(&t.averager, t.ddp, 0, PERIOD, .subgroup = part, .no_local_averaging = alone));
    take_turns(store, &t, rank, world / 2);
    tt_model_averager_free(t.averager);
    tt_module_free(t.ddp);
    tt_optimizer_free(t.sgd);
    tt_module_free(t.model);
    tt_destroy_process_group(part);
    tt_destroy_process_group(group);
    return 0;
}

static void local_steps_wait_for_no_other(void **state) {
    (void)state;
    with_ranks(2, local_body, &(bool){true});
    with_ranks(4, local_body, &(bool){false});
}

/* ---- */

static void differ(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(TT_SHAPE(4), rank == 1 ? TT_I64 : TT_F32);
    const char *name = "count";
    tt_model_averager *a = NULL;
    (void)user;
    CHECK(tt_periodic_model_averager(&a, group, TT_NAMED_TENSORS(1, &name, &x), 1) == TT_ERR_MISMATCH && !a);
    CHECK_TEXT("rank 1 has parameter 0 \"count\" i64");
    CHECK_OK(tt_barrier(group));
    tt_clear_error();
    CHECK(!tt_model_averager_state_dict(NULL) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("tt_model_averager_state_dict: the averager is NULL");
}

static void a_type_that_differs_is_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, differ, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_steps_wait_for_no_other),
        cmocka_unit_test(a_type_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
