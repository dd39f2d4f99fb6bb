/* What the library's communication hooks remember, with bad input, and when a rank dies. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "parallel/ddp/ddp.h"
#include "support/given_gradients.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tt_status set_top_k(tt_module *ddp) { return tt_top_k_hook(ddp, .density = 0.05); }
static tt_status set_int8(tt_module *ddp) { return tt_int8_hook(ddp, .block = 64); }
static tt_status set_power(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2, .start = -1); }

/* ---- state */

static void steps(tt_module *ddp, drawn_step *own, int rank, int from, int to) {
    for (int step = from; step < to; step++) {
        draw_step(own, rank, step);
        CHECK_OK(pass(ddp));
    }
}

static void resume(tt_group *group, int rank, void *user) {
    static tt_status (*const sets[])(tt_module *) = {set_int8, set_top_k, set_power};
    static drawn_step own;
    (void)user;
    for (size_t h = 0; h < COUNT(sets); h++) {
        TT_AUTO_SCOPE;
        tt_module *m = given_module(&own), *ddp = tt_ddp(m, group);
        CHECK_OK(sets[h](ddp));
        steps(ddp, &own, rank, 0, 5);
        const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
        CHECK(state && state->count > 3);
        static drawn_step first;
        tt_module *m2 = given_module(&own), *ddp2 = tt_ddp(m2, group);
        CHECK_OK(sets[h](ddp2));
        CHECK_OK(tt_comm_hook_load_state_dict(ddp2, state));
        steps(ddp, &own, rank, 5, 8);
        for (int p = 0; p < PARAMS; p++)
            memcpy(first.gradients[p], result(ddp, p), (size_t)elements(p) * sizeof(float));
        steps(ddp2, &own, rank, 5, 8);
        for (int p = 0; p < PARAMS; p++)
            CHECK(!memcmp(first.gradients[p], result(ddp2, p), (size_t)elements(p) * sizeof(float)));
        /* One that is new takes what is alike from the others; all else fails on all ranks, by name. */
        state = tt_comm_hook_state_dict(ddp);
        CHECK_OK(tt_comm_hook_load_state_dict(ddp2, rank ? state : TT_NAMED_TENSORS(0, NULL, NULL)));
        steps(ddp2, &own, rank, 8, 9);
        if (sets[h] == set_power) {
            tt_tensor *step = tt_named_tensors_find(tt_comm_hook_state_dict(ddp2), "powersgd.step");
            CHECK(step && *(int64_t *)tt_tensor_data(step) == 9);
        }
        const tt_named_tensors short_list = {state->size, 1, state->names, state->tensors};
        CHECK(tt_comm_hook_load_state_dict(ddp2, rank ? &short_list : state) == TT_ERR_NOT_FOUND);
        CHECK_TEXT(rank ? "is missing" : "rank 1 has failed in this");
        steps(ddp2, &own, rank, 0, 2);
        CHECK(tt_comm_hook_load_state_dict(ddp2, NULL) == TT_ERR_INVALID);
        tt_module_free(ddp2);
        tt_module_free(m2);
        tt_module_free(ddp);
        tt_module_free(m);
    }
}

/* A state without an entry, or with one that cannot be, is refused by name. */
static void damaged(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    static drawn_step own;
    (void)user;
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group);
    CHECK_OK(set_power(ddp));
    steps(ddp, &own, rank, 0, 2);
    const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
    const char *names[32];
    tt_tensor *tensors[32];
    int64_t count = 0;
    CHECK(state && state->count < (int64_t)COUNT(names));
    for (int64_t i = 0; i < state->count; i++)
        if (strcmp(state->names[i], "powersgd.seeds")) {
            names[count] = state->names[i];
            tensors[count++] = tt_clone(state->tensors[i]);
        }
    CHECK(count == state->count - 1);
    CHECK(tt_comm_hook_load_state_dict(ddp, TT_NAMED_TENSORS(count, names, tensors)) == TT_ERR_NOT_FOUND);
    CHECK_TEXT("entry \"powersgd.seeds\" is missing");
    *(int64_t *)tt_tensor_data(tt_named_tensors_find(state, "powersgd.step")) = -1;
    CHECK(tt_comm_hook_load_state_dict(ddp, state) == TT_ERR_INVALID);
    CHECK_TEXT("\"powersgd.step\": expected a number of steps, got -1");
    tt_module_free(ddp);
    tt_module_free(m);
}

static void damaged_states_are_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, damaged, NULL), 0);
}

static void training_goes_on_from_state(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, resume, NULL), 0);
    assert_int_equal(run_ranks(3, resume, NULL), 0);
}

/* A state of four ranks on two: matrices stay, errors begin anew. */
static void resume_elsewhere(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    static drawn_step own;
    (void)user;
    tt_group *pair;
    CHECK_OK(tt_group_split(&pair, group, rank / 2, rank));
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group);
    CHECK_OK(set_power(ddp));
    steps(ddp, &own, rank, 0, 5);
    const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
    tt_tensor *q = tt_named_tensors_find(state, "powersgd.q.a");
    CHECK(q && tt_tensor_numel(q) == 2 * 30 && !tt_named_tensors_find(state, "powersgd.q.b"));
    tt_module *m2 = given_module(&own), *ddp2 = tt_ddp(m2, pair);
    CHECK_OK(set_power(ddp2));
    CHECK_OK(tt_comm_hook_load_state_dict(ddp2, state));
    const tt_named_tensors *taken = tt_comm_hook_state_dict(ddp2);
    const float *again = tt_tensor_f32(tt_named_tensors_find(taken, "powersgd.q.a"));
    const float *error = tt_tensor_f32(tt_named_tensors_find(taken, "powersgd.error.a"));
    CHECK(!memcmp(again, tt_tensor_f32(q), 2 * 30 * sizeof *again));
    for (int i = 0; i < 40 * 30; i++)
        CHECK(error[i] == 0);
    steps(ddp2, &own, rank, 5, 6);
    tt_module_free(ddp2);
    tt_module_free(m2);
    tt_module_free(ddp);
    tt_module_free(m);
    tt_destroy_process_group(pair);
}

static void another_number_of_ranks_drops_errors(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, resume_elsewhere, NULL), 0);
}

/* As tt_elastic_restore() does: two ranks' wrappers let go of their group, and are bound to one with a third rank whose
 * wrapper is new; then to the pair again. */
static void rebind(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    static drawn_step own;
    static const int both[] = {0, 1};
    (void)user;
    tt_group *pair = NULL;
    CHECK_OK(tt_new_group(&pair, group, both, 2));
    tt_module *m = given_module(&own), *ddp = tt__ddp_make(&(tt_ddp_args){.module = m});
    CHECK(ddp);
    CHECK_OK(set_power(ddp)); /* before there is a group */
    CHECK(tt_comm_hook_load_state_dict(ddp, tt_comm_hook_state_dict(ddp)) == TT_ERR_STATE);
    if (rank < 2) {
        CHECK_OK(tt__ddp_bind(ddp, pair));
        steps(ddp, &own, rank, 0, 3);
        CHECK_OK(tt__ddp_bind(ddp, NULL));
        CHECK_OK(tt__ddp_bind(ddp, pair)); /* of as many ranks: errors stay */
        const float *error = tt_tensor_f32(tt_named_tensors_find(tt_comm_hook_state_dict(ddp), "powersgd.error.a"));
        CHECK(error && (error[0] != 0 || error[1] != 0));
    }
    CHECK_OK(tt__ddp_bind(ddp, group));
    const tt_named_tensors *dict = tt_comm_hook_state_dict(ddp);
    const float *error = tt_tensor_f32(tt_named_tensors_find(dict, "powersgd.error.a"));
    CHECK(error && error[0] == 0 && error[1] == 0);
    steps(ddp, &own, rank, 3, 6);
    dict = tt_comm_hook_state_dict(ddp);
    CHECK(*(int64_t *)tt_tensor_data(tt_named_tensors_find(dict, "powersgd.step")) == 6);
    tt_tensor *q = tt_named_tensors_find(dict, "powersgd.q.c"), *first = tt_clone(q);
    CHECK_OK(tt_tensor_broadcast(group, first, 0));
    CHECK(!memcmp(tt_tensor_f32(first), tt_tensor_f32(q), (size_t)tt_tensor_numel(q) * sizeof(float)));
    if (rank < 2) {
        CHECK_OK(tt__ddp_bind(ddp, pair));
        steps(ddp, &own, rank, 6, 7);
    }
    tt_module_free(ddp);
    tt_module_free(m);
    if (pair)
        tt_destroy_process_group(pair);
}

static void rebound_wrappers_keep_their_hook(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, rebind, NULL), 0);
}

/* ---- bad input */

static void misuse(tt_group *group, int rank, void *user) {
    static drawn_step own;
    (void)user;
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group), *plain = tt_nn_linear(2, 2);
    CHECK(tt_f16_hook(NULL) == TT_ERR_INVALID && tt_bf16_hook(plain) == TT_ERR_INVALID);
    CHECK_TEXT("tt_bf16_hook: expected a wrapper");
    CHECK(tt_all_reduce_hook(NULL) == TT_ERR_INVALID && tt_int8_hook(NULL) == TT_ERR_INVALID);
    CHECK(tt_top_k_hook(NULL) == TT_ERR_INVALID && tt_powersgd_hook(plain) == TT_ERR_INVALID);
    CHECK(tt_int8_hook(ddp, .block = 4) == TT_ERR_INVALID);
    CHECK_TEXT("expected a block of 8 to 65536 elements, got 4");
    CHECK(tt_top_k_hook(ddp, .density = 1.5) == TT_ERR_INVALID);
    CHECK_TEXT("expected a density above 0, at most 1, got 1.5");
    CHECK(tt_top_k_hook(ddp, .density = NAN) == TT_ERR_INVALID);
    CHECK(tt_powersgd_hook(ddp, .rank = -1) == TT_ERR_INVALID);
    CHECK_TEXT("expected a rank of at least 1");
    CHECK(tt_powersgd_hook(ddp, .min_compression_rate = -1) == TT_ERR_INVALID);
    CHECK(tt_powersgd_hook(ddp, .orthogonalization_epsilon = NAN) == TT_ERR_INVALID);
    CHECK(tt_comm_hook_state_dict(ddp) == NULL);
    CHECK_TEXT("expected a wrapper with one of the hooks");
    CHECK_OK(tt_f16_hook(ddp));
    CHECK(tt_powersgd_hook(ddp, .rank = rank ? 2 : 4) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has communication hook powersgd (rank 2, start 1000,");
    CHECK_TEXT("where rank 0 has communication hook powersgd (rank 4, start 1000,");
    CHECK((rank ? tt_f16_hook(ddp) : tt_bf16_hook(ddp)) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has communication hook f16 where rank 0 has communication hook bf16");
    steps(ddp, &own, rank, 0, 1); /* by the one before */
    tt_module_free(ddp);
    tt_module_free(m);
    tt_module_free(plain);
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, misuse, NULL), 0);
}

/* Which element types are taken. */
static void other_types(tt_group *group, int rank, void *user) {
    static const tt_dtype types[] = {TT_F64, TT_F16, TT_BF16};
    (void)user;
    for (size_t t = 0; t < COUNT(types); t++) {
        TT_AUTO_SCOPE;
        static const tt_module_class cls = TT_MODULE_CLASS(.name = "Typed", .forward = given_forward);
        tt_module *m = tt_module_new(&cls, NULL);
        CHECK_OK(tt_module_register_parameter(m, "w", tt_zeros(TT_SHAPE(8, 8), types[t])));
        tt_module *ddp = tt_ddp(m, group);
        CHECK_OK(tt_all_reduce_hook(ddp));
        CHECK(tt_f16_hook(ddp) == (types[t] == TT_BF16 ? TT_ERR_UNSUPPORTED : TT_OK));
        CHECK(tt_bf16_hook(ddp) == (types[t] == TT_F16 ? TT_ERR_UNSUPPORTED : TT_OK));
        CHECK(set_int8(ddp) == TT_ERR_UNSUPPORTED && set_top_k(ddp) == TT_ERR_UNSUPPORTED);
        CHECK(set_power(ddp) == TT_ERR_UNSUPPORTED);
        CHECK_TEXT("communication hook \"powersgd\": it takes gradients of f32; \"w\" is ");
        CHECK_OK(types[t] == TT_BF16 ? tt_bf16_hook(ddp) : tt_f16_hook(ddp));
        tt_tensor *w = tt_module_parameters(ddp)->tensors[0];
        tt_tensor *by = tt_full(TT_SHAPE(8, 8), types[t], rank ? 0.5 : 0.25);
        CHECK_OK(tt_backward(tt_sum(tt_mul(w, by))));
        const float *x = tt_tensor_f32(tt_to(tt_grad(w), TT_F32));
        for (int i = 0; i < 64; i++)
            CHECK(x[i] == 0.375F);
        tt_module_free(ddp);
        tt_module_free(m);
    }
}

static void types_are_taken_or_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, other_types, NULL), 0);
}

/* ---- a rank that dies or freezes inside a hook */

typedef struct failing {
    tt_status (*set)(tt_module *ddp);
    bool freeze;
    int64_t at; /* the bucket that rank 1 still begins: all stages of those before it have begun */
} failing;

static void end_here(const tt_reducer_event *event, void *user) {
    const failing *f = user;
    if (event->kind != TT_REDUCER_BEGIN || event->index != f->at)
        return;
    if (f->freeze)
        raise(SIGSTOP);
    _exit(0);
}

static int fail_in_hook(tt_store *store, int rank, int world, void *arg) {
    static drawn_step own;
    const failing *f = arg;
    tt_group *group;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = f->freeze ? 1000 : CALM_MS));
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group, .bucket_cap_bytes = 1);
    CHECK_OK(f->set(ddp));
    steps(ddp, &own, rank, 0, 2);
    wait_for_all(store, world);
    if (rank == 1)
        tt_reducer_set_trace(tt_ddp_reducer(ddp), end_here, (void *)f);
    CHECK(pass(ddp) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    CHECK(pass(ddp) != TT_OK); /* and none follows */
    CHECK(tt_comm_hook_load_state_dict(ddp, TT_NAMED_TENSORS(0, NULL, NULL)) != TT_OK);
    tt_module_free(ddp);
    tt_module_free(m);
    tt_destroy_process_group(group);
    return 0;
}

static void a_rank_that_ends_is_named(void **state) {
    (void)state;
    static tt_status (*const sets[])(tt_module *) = {tt_f16_hook, set_int8, set_top_k, set_power};
    for (size_t h = 0; h < COUNT(sets); h++)
        for (int freeze = 0; freeze < 2; freeze++)
            for (int64_t at = 1; at < PARAMS; at += 3) {
                ranks ranks;
                start_ranks(&ranks, 3, fail_in_hook, &(failing){sets[h], freeze != 0, at});
                assert_int_equal(end_of_rank(&ranks, 0), 0);
                assert_int_equal(end_of_rank(&ranks, 2), 0);
                kill(ranks.pid[1], SIGKILL);
                assert_int_equal(end_of_rank(&ranks, 1), freeze ? 128 + SIGKILL : 0);
                tt_store_server_free(ranks.server);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_goes_on_from_state),      cmocka_unit_test(another_number_of_ranks_drops_errors),
        cmocka_unit_test(rebound_wrappers_keep_their_hook), cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(types_are_taken_or_refused),       cmocka_unit_test(a_rank_that_ends_is_named),
        cmocka_unit_test(damaged_states_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
