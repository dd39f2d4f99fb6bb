/* Sparse gradients stay in one process: what exchanges gradients says so on all ranks, by the parameter's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <tutti/fully_shard.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

static tt_module *with_table(bool sparse) {
    return tt_nn_sequential(tt_nn_embedding(6, 3, .sparse = sparse), tt_nn_linear(3, 2));
}

static void refuse_by_name(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = with_table(true);
    CHECK(!tt_ddp(model, group) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("tt_ddp: parameter \"0.weight\" is given sparse gradients");
    CHECK(!tt_ddp(model, group, .virtual_ranks = 2) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK(!tt_fully_shard(model, group) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("parameter \"0.weight\" is given sparse gradients");
    tt_module *differs = with_table(rank == 1);
    CHECK(!tt_ddp(differs, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has parameter 0 \"0.weight\" f32 (6, 3) (.sparse)");
    tt_module_free(differs);
    /* Left out, it is this rank's alone. */
    static const char *const ignored[] = {"0.weight", NULL};
    tt_module *ddp = tt_ddp(model, group, .ignored = ignored);
    CHECK(ddp);
    TT_AUTO_SCOPE;
    tt_tensor *read = tt_full(TT_SHAPE(1), TT_I64, rank);
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, read))));
    const tt_tensor *rows = tt_sparse_grad_indices(tt_module_parameters(model)->tensors[0]);
    CHECK(rows && tt_tensor_numel(rows) == 1 && tt_tensor_i64(rows)[0] == rank);
    tt_module_free(ddp);
    tt_module_free(model);
}

/* A table that nobody has said to be sparse, until it is read so. */
static void refuse_in_the_pass(tt_group *group, int rank, void *user) {
    (void)user, (void)rank;
    tt_module *model = with_table(false);
    tt_module *ddp = tt_ddp(model, group);
    TT_AUTO_SCOPE;
    tt_tensor *read = tt_zeros(TT_SHAPE(1), TT_I64);
    tt_tensor *y = tt_embedding(tt_module_parameters(model)->tensors[0], read, .sparse = true);
    CHECK(tt_backward(tt_sum(y)) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("f32 (6, 3) gets a sparse gradient, and its gradient lies in the memory of a wrapper");
    tt_module_free(ddp);
    tt_module_free(model);
}

static void all_ranks_refuse(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse_by_name, NULL), 0);
}

static void passes_refuse(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse_in_the_pass, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranks_refuse), cmocka_unit_test(passes_refuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
