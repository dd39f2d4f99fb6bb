/* The trainer with communication hooks: what they remember is part of checkpoints, so that a run that was killed, and
 * is resumed, ends with the bits of one that was not. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/own_folder.h"
#include "support/ranks.h"
#include "support/trainer_cases.h"

#include <tutti/comm_hooks.h>

static tt_status set_int8(tt_module *ddp, void *user) {
    (void)user;
    return tt_int8_hook(ddp, .block = 16);
}

static tt_status set_top_k(tt_module *ddp, void *user) {
    (void)user;
    return tt_top_k_hook(ddp, .density = 0.1);
}

/* Compresses from the second step on. */
static tt_status set_power(tt_module *ddp, void *user) {
    (void)user;
    return tt_powersgd_hook(ddp, .rank = 1, .start = 1, .min_compression_rate = 0.5);
}

static tt_status set_bf16(tt_module *ddp, void *user) {
    (void)user;
    return tt_bf16_hook(ddp);
}

/* A hook of the program's own. */
static tt_status average(void *state, const tt_bucket *b, int stage, tt_work **work) {
    (void)state;
    return stage ? TT_OK : tt_all_reduce(b->group, b->data, b->count, b->dtype, TT_AVG, .work = work);
}

static const tt_comm_hook averaging = {.size = sizeof averaging, .name = "averaging", .next = average};

static tt_status set_own(tt_module *ddp, void *user) {
    (void)user;
    return tt_ddp_register_comm_hook(ddp, &averaging, NULL);
}

static tt_status fail_silently(tt_module *ddp, void *user) {
    (void)ddp;
    (void)user;
    return TT_ERR_IO;
}

static const tt_trainer_comm_hook_fn hooks[] = {set_int8, set_top_k, set_power, set_bf16, set_own};
enum { HOOKS = sizeof hooks / sizeof *hooks, DIES_AT = 7 };

typedef struct one_run {
    tt_trainer_comm_hook_fn hook;
    const char *checkpoint, *best, *resume;
    int64_t max_steps;
    int dies; /* the rank that dies at DIES_AT; -1: none */
} one_run;

static tt_tensor *step_or_die(tt_trainer *t, const tt_batch *b, void *user) {
    const int *dies_here = user;
    if (*dies_here && !tt_trainer_evaluating(t) && tt_trainer_steps(t) == DIES_AT)
        raise(SIGKILL);
    return case_step(t, b, NULL);
}

static tt_status run(trainer_case *c, tt_group *group, const one_run *r) {
    int dies_here = r->dies == tt_get_rank(group);
    return tt_trainer_run(c->model, c->optimizer, c->loader, step_or_die, .user = &dies_here, .group = group,
                          .sampler = c->sampler, .epochs = 3, .max_steps = r->max_steps, .scheduler = c->scheduler,
                          .step_seed = 5, .checkpoint = r->checkpoint, .save_every_steps = r->checkpoint ? 3 : 0,
                          .keep = r->checkpoint ? 1 : 0, .best_checkpoint = r->best, .resume = r->resume,
                          .eval_loader = r->best ? c->eval_loader : NULL, .comm_hook = r->hook);
}

static void make(trainer_case *c, tt_group *group) {
    CHECK_OK(case_make(c, tt_get_rank(group), tt_get_world_size(group), 4));
}

/* ---- stopped and resumed */

static void resumed(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    trainer_case whole, first, second;
    for (int h = 0; h < HOOKS; h++) {
        make(&whole, group);
        CHECK_OK(run(&whole, group, &(one_run){.hook = hooks[h], .dies = -1}));
        for (int64_t k = 1; k <= 7; k += 3) {
            make(&first, group);
            CHECK_OK(
                run(&first, group, &(one_run){.hook = hooks[h], .checkpoint = "part", .max_steps = k, .dies = -1}));
            CHECK_OK(tt_barrier(group)); /* rank 0 has saved */
            make(&second, group);
            CHECK_OK(run(&second, group, &(one_run){.hook = hooks[h], .resume = "part", .dies = -1}));
            CHECK(case_equal(&whole, &second));
            CHECK_OK(tt_barrier(group));
            case_free(&first);
            case_free(&second);
        }
        case_free(&whole);
    }
}

static void test_resumed_with_a_hook(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, resumed, NULL), 0);
    assert_int_equal(run_ranks(2, resumed, NULL), 0);
    assert_int_equal(run_ranks(3, resumed, NULL), 0);
}

/* ---- killed and resumed */

static void be_killed(tt_group *group, int rank, void *user) {
    const one_run *r = user;
    trainer_case c;
    make(&c, group);
    CHECK(run(&c, group, r) == TT_ERR_PEER);
    CHECK(rank != r->dies);
    CHECK_TEXT("rank 1");
    case_free(&c);
}

static void go_on(tt_group *group, int rank, void *user) {
    const one_run *r = user;
    trainer_case whole, second;
    (void)rank;
    make(&whole, group);
    CHECK_OK(run(&whole, group, &(one_run){.hook = r->hook, .dies = -1}));
    make(&second, group);
    CHECK_OK(run(&second, group, &(one_run){.hook = r->hook, .resume = r->checkpoint, .dies = -1}));
    CHECK(case_equal(&whole, &second));
    case_free(&whole);
    case_free(&second);
}

/* The kept checkpoint is a second name of the latest. */
static void test_killed_and_resumed(void **state) {
    (void)state;
    for (int h = 0; h < HOOKS; h++) {
        one_run r = {.hook = hooks[h], .checkpoint = "killed.safetensors", .dies = 1};
        assert_int_equal(run_ranks(2, be_killed, &r), 1); /* rank 1 alone ends badly */
        assert_int_equal(run_ranks(2, go_on, &r), 0);
        r.checkpoint = "killed-step-6.safetensors";
        assert_int_equal(run_ranks(2, go_on, &r), 0);
    }
}

/* ---- rules */

/* The best checkpoint has the state, too: of three ranks, each of which has errors of its own. */
static void save_best(tt_group *group, int rank, void *user) {
    trainer_case c;
    const one_run *r = user;
    make(&c, group);
    CHECK_OK(run(&c, group, r));
    CHECK_OK(tt_barrier(group));
    tt_safetensors *file = NULL;
    CHECK_OK(tt_safetensors_load(&file, r->best));
    tt_tensor *errors = tt_named_tensors_find(tt_safetensors_tensors(file), "more.comm_hook.top_k.error.0.weight");
    CHECK(errors && tt_tensor_dim(errors) == 2 && tt_tensor_size(errors, 0) == tt_get_world_size(group));
    const float *x = tt_tensor_f32(errors);
    int64_t n = tt_tensor_size(errors, 1);
    CHECK(n == 48 && memcmp(x, x + n, (size_t)n * sizeof *x));
    tt_safetensors_free(file);
    case_free(&c);
    (void)rank;
}

/* Another number of ranks, or none of a hook's state: errors begin at zero, PowerSGD's steps go on. */
static void on_other_ranks(tt_group *group, int rank, void *user) {
    const one_run *r = user;
    trainer_case c;
    (void)rank;
    make(&c, group);
    CHECK_OK(run(&c, group, r));
    case_free(&c);
}

static void refused(tt_group *group, int rank, void *user) {
    const one_run *r = user;
    trainer_case c;
    make(&c, group);
    CHECK(run(&c, group, r) == TT_ERR_NOT_FOUND);
    CHECK_TEXT("entry \"top_k.world_size\" is missing");
    case_free(&c);
    make(&c, group);
    one_run differs = {.hook = rank ? set_int8 : NULL, .dies = -1};
    CHECK(run(&c, group, &differs) == TT_ERR_MISMATCH);
    CHECK_TEXT(".comm_hook given");
    differs = (one_run){.hook = set_int8, .checkpoint = rank ? NULL : "x", .dies = -1};
    CHECK(run(&c, group, &differs) == TT_ERR_MISMATCH);
    differs = (one_run){.hook = rank ? set_int8 : set_top_k, .dies = -1};
    CHECK(run(&c, group, &differs) == TT_ERR_MISMATCH);
    CHECK_TEXT("communication hook");
    CHECK(tt_trainer_run(c.model, c.optimizer, c.loader, case_step, .epochs = 1, .comm_hook = set_int8) ==
          TT_ERR_INVALID);
    CHECK_TEXT(".comm_hook needs .group");
    differs = (one_run){.hook = fail_silently, .dies = -1};
    CHECK(run(&c, group, &differs) == TT_ERR_IO);
    CHECK_TEXT("tt_trainer_run: .comm_hook: ");
    case_free(&c);
}

static void test_what_a_checkpoint_has(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, save_best, &(one_run){.hook = set_top_k, .best = "best", .dies = -1}), 0);
    one_run r = {.hook = set_power, .checkpoint = "of-three", .max_steps = 4, .dies = -1};
    assert_int_equal(run_ranks(3, on_other_ranks, &r), 0);
    r = (one_run){.hook = set_power, .resume = "of-three", .dies = -1};
    assert_int_equal(run_ranks(2, on_other_ranks, &r), 0);
    assert_int_equal(run_ranks(1, on_other_ranks, &r), 0);
    r.hook = NULL;
    assert_int_equal(run_ranks(2, on_other_ranks, &r), 0);
    r.hook = set_top_k;
    assert_int_equal(run_ranks(2, refused, &r), 0);
    r = (one_run){.checkpoint = "without", .max_steps = 4, .dies = -1};
    assert_int_equal(run_ranks(2, on_other_ranks, &r), 0);
    r = (one_run){.hook = set_power, .resume = "without", .dies = -1};
    assert_int_equal(run_ranks(2, on_other_ranks, &r), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed_with_a_hook),
        cmocka_unit_test(test_killed_and_resumed),
        cmocka_unit_test(test_what_a_checkpoint_has),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
