/* State of sharded optimizers in files, whole and spread, and in other worlds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "dist/parallel/zero_models.h"
#include "support/own_folder.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- checkpoints, in other worlds */

static void path_in(char *path, const char *name, int from) {
    snprintf(path, 200, "%s/%s.%d.safetensors", folder, name, from);
}

typedef struct checkpoint_case {
    int from, stage; /* 3: of tt_fully_shard() */
    tt_zero_make_fn make;
    tt_dtype dtype;
} checkpoint_case;

static zero_side side_of(tt_group *group, const checkpoint_case *c, size_t cap) {
    static const char *const units[] = {"stem", "left"};
    if (c->stage < 3)
        return zero_sharded_side(group, c->make, c->stage, c->dtype, cap);
    zero_side s = {.model = zero_branches()};
    CHECK_OK(tt_module_to(s.model, c->dtype));
    s.ddp = tt_fully_shard(s.model, group, .units = units, .unit_count = 2);
    CHECK(s.ddp);
    s.optimizer = tt_zero_optimizer(s.ddp, c->make, NULL);
    CHECK(s.optimizer);
    return s;
}

/* Have the module's whole parameters, of stage 3; end it. */
static void take_whole(const checkpoint_case *c, const zero_side *s) {
    if (c->stage == 3)
        CHECK_OK(tt_fully_shard_gather(s->ddp, TT_ALL_RANKS));
}

static void give_whole_back(const checkpoint_case *c, const zero_side *s) {
    if (c->stage == 3)
        CHECK_OK(tt_fully_shard_scatter(s->ddp));
}

static void save_both_ways(tt_group *group, int rank, void *user) {
    const checkpoint_case *c = user;
    char path[200];
    zero_side b = side_of(group, c, 2048);
    zero_train(&b, 0, 3, rank, c->dtype);
    path_in(path, "sharded", c->from);
    CHECK_OK(tt_zero_save_sharded(b.optimizer, path));
    CHECK_OK(tt_zero_consolidate(b.optimizer, 0));
    path_in(path, "whole", c->from);
    take_whole(c, &b);
    if (rank == 0)
        CHECK_OK(tt_checkpoint_save(path, b.model, b.optimizer, NULL));
    else
        CHECK(tt_checkpoint_save(path, b.model, b.optimizer, NULL) == TT_ERR_STATE);
    give_whole_back(c, &b);
    zero_end_side(&b);
}

/* Go on from a checkpoint, sharded or whole, beside a plain optimizer that goes on from the whole one. */
static void go_on(tt_group *group, int rank, void *user) {
    const checkpoint_case *c = user;
    char whole[200], sharded[200];
    path_in(whole, "whole", c->from);
    path_in(sharded, "sharded", c->from);
    for (int way = 0; way < 2; way++) {
        zero_side a = zero_plain_side(group, c->make, c->dtype, 0), b = side_of(group, c, 4096);
        CHECK_OK(tt_checkpoint_load(whole, a.model, a.optimizer, NULL));
        take_whole(c, &b);
        CHECK_OK(tt_checkpoint_load(whole, b.model, way ? NULL : b.optimizer, NULL));
        give_whole_back(c, &b);
        if (way)
            CHECK_OK(tt_zero_load_sharded(b.optimizer, sharded));
        zero_train(&a, 3, 6, rank, c->dtype);
        zero_train(&b, 3, 6, rank, c->dtype);
        take_whole(c, &b);
        zero_expect_same_parameters(a.model, b.model);
        CHECK_OK(tt_zero_consolidate(b.optimizer, TT_ALL_RANKS));
        zero_expect_same(tt_optimizer_state_dict(a.optimizer), tt_optimizer_state_dict(b.optimizer));
        zero_end_side(&a);
        zero_end_side(&b);
    }
}

static void checkpoints_load_in_other_worlds(void **state) {
    (void)state;
    static const checkpoint_case kinds[] = {{1, 1, zero_make_adam, TT_F32},   {3, 1, zero_make_groups, TT_F32},
                                            {4, 2, zero_make_adam, TT_BF16},  {2, 2, zero_make_sgd, TT_F32},
                                            {3, 3, zero_make_groups, TT_F32}, {2, 3, zero_make_adam, TT_BF16}};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        checkpoint_case c = kinds[i];
        assert_int_equal(run_ranks(c.from, save_both_ways, &c), 0);
        for (int to = 1; to <= 4; to++)
            if (world_is_tried(to))
                assert_int_equal(run_ranks(to, go_on, &c), 0);
    }
}

/* ---- sharded files that don't fit */

static void copy_file(const char *from, const char *to) {
    char command[1000];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    CHECK(system(command) == 0);
}

static void break_files(tt_group *group, int rank, void *user) {
    (void)user;
    char path[200], first[300], second[300], kept[300];
    snprintf(path, sizeof path, "%s/broken.safetensors", folder);
    snprintf(first, sizeof first, "%s/broken-00001-of-00002.safetensors", folder);
    snprintf(second, sizeof second, "%s/broken-00002-of-00002.safetensors", folder);
    snprintf(kept, sizeof kept, "%s/kept", folder);
    zero_side b = zero_sharded_side(group, zero_make_adam, 1, TT_F32, 2048);
    zero_train(&b, 0, 1, rank, TT_F32);
    CHECK(tt_zero_save_sharded(b.optimizer, "/tmp/state.pt") == TT_ERR_INVALID);
    CHECK_TEXT(".safetensors");
    CHECK(tt_zero_load_sharded(b.optimizer, path) == TT_ERR_IO);
    CHECK(tt_zero_save_sharded(b.optimizer, "/nonexistent/x.safetensors") == TT_ERR_IO);
    CHECK_OK(tt_zero_save_sharded(b.optimizer, path));
    if (rank == 0)
        copy_file(first, kept);
    CHECK_OK(tt_barrier(group));
    CHECK_OK(tt_zero_save_sharded(b.optimizer, path));
    if (rank == 0)
        copy_file(kept, first); /* of another save */
    CHECK_OK(tt_barrier(group));
    CHECK(tt_zero_load_sharded(b.optimizer, path) == TT_ERR_FORMAT);
    CHECK_TEXT("another save");
    CHECK_OK(tt_zero_save_sharded(b.optimizer, path));
    if (rank == 0)
        CHECK(unlink(second) == 0);
    CHECK_OK(tt_barrier(group));
    CHECK(tt_zero_load_sharded(b.optimizer, path) == TT_ERR_IO);
    CHECK_TEXT("00002-of-00002");
    zero_train(&b, 1, 2, rank, TT_F32);
    zero_end_side(&b);
}

static void files_of_different_saves_are_told_apart(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, break_files, NULL), 0);
}

/* ---- sharded files of someone else */

enum { FORGED_MAX = 4000 };

/* Write a rank's file anew, with `more` entries beside its own, and each range of elements moved. */
static void forge(const char *path, const char *file, int more, int64_t move) {
    tt_safetensors *f;
    static const char *names[FORGED_MAX];
    static tt_tensor *tensors[FORGED_MAX];
    static char texts[FORGED_MAX][32];
    TT_AUTO_SCOPE;
    CHECK_OK(tt_safetensors_load(&f, file));
    const tt_named_tensors *own = tt_safetensors_tensors(f);
    const tt_metadata metadata[] = {{"zero.world_size", "2"}, {"zero.save", tt_safetensors_metadata(f, "zero.save")}};
    int n = 0;
    for (; n < own->count; n++) {
        names[n] = own->names[n];
        tensors[n] = own->tensors[n];
        if (!strcmp(names[n], "slices"))
            for (int64_t i = 0; i < tt_tensor_shape(tensors[n]).dim[0]; i++)
                tt_tensor_i64(tensors[n])[3 * i + 1] += move;
    }
    tt_tensor *first = tt_named_tensors_find(own, "state.0.exp_avg");
    for (int i = 0; i < more; i++, n++) {
        snprintf(texts[n], sizeof texts[n], "state.0.a%d", i);
        names[n] = texts[n];
        tensors[n] = tt_clone(first);
    }
    CHECK_OK(tt_safetensors_save(path, TT_NAMED_TENSORS(n, names, tensors), metadata, 2));
    tt_safetensors_free(f);
}

static void load_forged(tt_group *group, int rank, void *user) {
    (void)user;
    char path[200], first[300], second[300], kept[300];
    snprintf(path, sizeof path, "%s/forged.safetensors", folder);
    snprintf(first, sizeof first, "%s/forged-00001-of-00002.safetensors", folder);
    snprintf(second, sizeof second, "%s/forged-00002-of-00002.safetensors", folder);
    snprintf(kept, sizeof kept, "%s/forged.kept", folder);
    zero_side b = zero_sharded_side(group, zero_make_adam, 1, TT_F32, 2048);
    zero_train(&b, 0, 1, rank, TT_F32);
    CHECK_OK(tt_zero_save_sharded(b.optimizer, path));
    if (rank == 0) {
        copy_file(first, kept);
        forge(first, kept, 3000, 0);
    }
    CHECK_OK(tt_barrier(group));
    CHECK(tt_zero_load_sharded(b.optimizer, path) == TT_ERR_FORMAT);
    CHECK_TEXT("more entries than");
    CHECK_OK(tt_barrier(group));
    if (rank == 0) {
        copy_file(kept, first);
        copy_file(second, kept);
        forge(second, kept, 0, -1); /* over the first file's, and short of the end */
    }
    CHECK_OK(tt_barrier(group));
    CHECK(tt_zero_load_sharded(b.optimizer, path) == TT_ERR_FORMAT);
    CHECK_OK(tt_barrier(group));
    if (rank == 0)
        forge(second, kept, 0, 0);
    CHECK_OK(tt_barrier(group));
    CHECK_OK(tt_zero_load_sharded(b.optimizer, path));
    zero_end_side(&b);
}

static void forged_files_are_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, load_forged, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_load_in_other_worlds),
        cmocka_unit_test(files_of_different_saves_are_told_apart),
        cmocka_unit_test(forged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
