/* Ranks of a pipeline whose models have other values: one error that names the parameter, on all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

/* `differs`: one element of parameter 4 is another. */
static tt_module *make_model(bool differs) {
    tt_manual_seed(1);
    tt_module *model = tt_nn_sequential(tt_nn_linear(8, 8), tt_nn_linear(8, 8), tt_nn_linear(8, 8));
    if (differs)
        tt_tensor_f32(tt_module_parameters(model)->tensors[4])[7] += 1e-3F;
    return model;
}

static const char other_values[] = "expected the same parameters on all ranks: seed their generators alike "
                                   "(tt_manual_seed()), load one file, or call tt_pipeline_gather()";

/* Refused on all ranks, unless they say that they mean it; then a rank trains what it has. */
static void give_other_values(tt_group *group, int rank, void *user) {
    (void)user;
    tt_pipeline *pipe = NULL;
    tt_module *model = make_model(rank == 1);
    CHECK(tt_pipeline_new(&pipe, group, model, 4) == TT_ERR_MISMATCH && !pipe);
    CHECK_TEXT(other_values);
    CHECK_TEXT("rank 1 has the values ");
    CHECK_TEXT(" of parameter 4 \"2.weight\" where rank 0 has the values ");
    CHECK(tt_pipeline_new(&pipe, group, model, 4, .own_weights = rank == 1) == TT_ERR_MISMATCH && !pipe);
    CHECK_TEXT("rank 1 has .own_weights where rank 0 has no .own_weights");
    CHECK_OK(tt_pipeline_new(&pipe, group, model, 4, .own_weights = true));
    CHECK_OK(tt_pipeline_gather(pipe));
    tt_pipeline_free(pipe);
    CHECK_OK(tt_pipeline_new(&pipe, group, model, 4)); /* now alike: rank 1's, whose stage it is */
    tt_pipeline_free(pipe);
    tt_module *first = make_model(false);
    CHECK(tt_tensor_f32(tt_module_parameters(model)->tensors[4])[7] ==
          tt_tensor_f32(tt_module_parameters(first)->tensors[4])[7] + 1e-3F);
    tt_module_free(first);
    tt_module_free(model);
}

static void values_that_differ_are_named_on_every_rank(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, give_other_values, NULL), 0);
}

/* Of pipelines beside each other the first one's values are taken, so only these must be alike. */
static void give_other_values_beside(tt_group *group, int rank, void *user) {
    (void)user;
    for (int different = 0; different < 4; different++) {
        tt_pipeline *pipe = NULL;
        tt_group *own = NULL, *data = NULL;
        CHECK_OK(tt_group_split(&own, group, rank / 2, 0));
        CHECK_OK(tt_group_split(&data, group, rank % 2, 0));
        tt_module *model = make_model(rank == different);
        tt_status status = tt_pipeline_new(&pipe, own, model, 4, .data_group = data);
        CHECK(different < 2 ? status == TT_ERR_MISMATCH && !pipe : status == TT_OK);
        if (different < 2)
            CHECK_TEXT(other_values);
        CHECK_OK(tt_barrier(group));
        tt_pipeline_free(pipe);
        tt_module_free(model);
        tt_destroy_process_group(own);
        tt_destroy_process_group(data);
    }
}

static void values_of_the_first_pipeline_count(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, give_other_values_beside, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_differ_are_named_on_every_rank),
        cmocka_unit_test(values_of_the_first_pipeline_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
