/* Sharded optimizers of which one rank fails alone: the others learn of it, at once, and none waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "dist/zero_models.h"
#include "support/own_folder.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_cant_make_one_is_named),
        cmocka_unit_test(so_is_one_with_a_path_of_its_own),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
