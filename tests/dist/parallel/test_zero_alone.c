/* Sharded optimizers of which one rank fails alone: the others learn of it, at once, and none waits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "dist/parallel/zero_models.h"
#include "support/own_folder.h"
#include "tensor/core/tensor.h"

enum { WORLD = 3, BAD = 1 };

/* ---- making one */

static void make_alone(tt_group *group, int rank, void *user) {
    (void)user;
    zero_side s = {.model = zero_branches()};
    s.ddp = tt_ddp(s.model, group, .bucket_cap_bytes = 2048);
    CHECK(!tt_zero_optimizer(s.ddp, zero_make_adam, NULL, .stage = rank == BAD ? 3 : 2));
    CHECK(tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has failed: tt_zero_optimizer: expected stage 1 or 2, got 3 where rank 0 has ready");
    CHECK(!tt_zero_optimizer(s.ddp, rank == 0 ? NULL : zero_make_adam, NULL));
    CHECK(tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("where rank 0 has failed: tt_zero_optimizer: `make` is NULL");
    int scope = tt_scope_begin();
    CHECK(rank != BAD || tt_detach(tt_module_parameters(s.model)->tensors[0]));
    CHECK(!tt_zero_optimizer(s.ddp, zero_make_adam, NULL) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has failed: tt_zero_optimizer: parameter \"");
    CHECK_TEXT("shares its memory");
    tt_scope_end(scope);
    s.optimizer = tt_zero_optimizer(s.ddp, zero_make_adam, NULL, .stage = 2); /* nothing is spoilt */
    CHECK(s.optimizer);
    zero_train(&s, 0, 2, rank, TT_F32);
    zero_end_side(&s);
}

static void a_rank_that_cant_make_one_is_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(WORLD, make_alone, NULL), 0);
}

/* ---- files */

static void name_files_alone(tt_group *group, int rank, void *user) {
    (void)user;
    char path[200];
    snprintf(path, sizeof path, "%s/alone.%s", folder, rank == BAD ? "pt" : "safetensors");
    zero_side s = zero_sharded_side(group, zero_make_adam, 1, TT_F32, 2048);
    zero_train(&s, 0, 1, rank, TT_F32);
    CHECK(tt_zero_save_sharded(s.optimizer, path) == (rank == BAD ? TT_ERR_INVALID : TT_ERR_STATE));
    CHECK_TEXT(rank == BAD ? ".safetensors" : "tt_zero_save_sharded: rank 1 failed");
    snprintf(path, sizeof path, "%s/alone.safetensors", folder);
    CHECK_OK(tt_zero_save_sharded(s.optimizer, path));
    CHECK(tt_zero_load_sharded(s.optimizer, rank == BAD ? NULL : path) ==
          (rank == BAD ? TT_ERR_INVALID : TT_ERR_STATE));
    CHECK_TEXT(rank == BAD ? "got NULL" : "tt_zero_load_sharded: rank 1 failed");
    CHECK_OK(tt_zero_load_sharded(s.optimizer, path));
    zero_end_side(&s);
}

static void so_is_one_with_a_path_of_its_own(void **state) {
    (void)state;
    assert_int_equal(run_ranks(WORLD, name_files_alone, NULL), 0);
}

/* ---- steps */

static tt_tensor *first_slice;

static tt_optimizer *make_and_note(const tt_named_tensors *p, void *user) {
    first_slice = p->tensors[0];
    return *(const int *)user ? zero_make_lamb(p, NULL) : zero_make_adam(p, NULL);
}

static void expect_failure(tt_status status, int rank, tt_status expected, const char *own, const char *others) {
    CHECK(status == (rank == BAD ? expected : TT_ERR_STATE));
    CHECK_TEXT(rank == BAD ? own : others);
}

/* Fail on the bad rank in what it does alone, in calls that all make. */
static void step_alone(tt_group *group, int rank, void *user) {
    const int is_lamb = *(int *)user;
    const double norm = is_lamb ? INFINITY : 2;
    zero_side s = {.model = zero_branches()};
    s.ddp = tt_ddp(s.model, group, .bucket_cap_bytes = 2048);
    s.optimizer = tt_zero_optimizer(s.ddp, make_and_note, user, .stage = 1 + is_lamb);
    CHECK(s.optimizer);
    zero_pass(s.ddp, 1, TT_F32, 1);
    expect_failure(tt_zero_clip_grad_norm_(s.optimizer, rank == BAD ? -1 : 1, .norm_type = norm), rank, TT_ERR_INVALID,
                   "max_norm", "tt_zero_clip_grad_norm_: rank 1 failed");
    CHECK_OK(tt_zero_clip_grad_norm_(s.optimizer, 1, .norm_type = norm));
    tt_tensor *whole = tt_module_parameters(s.model)->tensors[0];
    whole->contiguous = rank != BAD; /* as if it had been converted: no call lets it */
    expect_failure(tt_optimizer_step(s.optimizer), rank, TT_ERR_STATE, "lies elsewhere",
                   "tt_optimizer_step: rank 1 failed");
    whole->contiguous = true;
    CHECK_OK(tt_optimizer_step(s.optimizer));
    first_slice->dtype = rank == BAD ? TT_F64 : TT_F32;
    tt_status status = tt_optimizer_step(s.optimizer);
    if (!is_lamb || rank == BAD)
        expect_failure(status, rank, TT_ERR_STATE, "parameter 0 was f32", "tt_optimizer_step: rank 1 failed");
    else
        CHECK(status == TT_ERR_ABORTED && strstr(tt_last_error(), "rank 1 aborted the group: tt_optimizer_step: par"));
    first_slice->dtype = TT_F32;
    CHECK(is_lamb || !tt_optimizer_step(s.optimizer));
    zero_end_side(&s);
}

static void so_is_one_that_fails_in_a_step(void **state) {
    (void)state;
    for (int is_lamb = 0; is_lamb < 2; is_lamb++)
        assert_int_equal(run_ranks(WORLD, step_alone, &is_lamb), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_cant_make_one_is_named),
        cmocka_unit_test(so_is_one_with_a_path_of_its_own),
        cmocka_unit_test(so_is_one_that_fails_in_a_step),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
