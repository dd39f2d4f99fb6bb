/* checkpoint: saving beside training. */
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "base/error.h"
#include "support/own_folder.h"

static tt_module *make_model(double value) {
    tt_module *model = tt_nn_linear(40, 30);
    TT_AUTO_SCOPE;
    for (int i = 0; i < 2; i++) {
        tt_tensor *x = tt_module_parameters(model)->tensors[i];
        assert_int_equal(tt_copy(x, tt_full(tt_tensor_shape(x), TT_F32, value)), TT_OK);
    }
    return model;
}

static unsigned char *file_bytes(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(65536);
    assert_non_null(file);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 65536, file);
    fclose(file);
    return bytes;
}

/* What is written is the state of the moment of the call, byte for byte what tt_checkpoint_save() writes. */
static void the_state_of_the_call_is_saved(void **state) {
    (void)state;
    tt_checkpoint_saver *saver = tt_checkpoint_saver_new();
    tt_module *model = make_model(0);
    for (int round = 1; round < 20; round++) {
        tt_module *now = make_model(round);
        tt_progress progress = TT_PROGRESS(.epoch = round);
        assert_int_equal(tt_module_load_state_dict(model, tt_module_state_dict(now)), TT_OK);
        assert_int_equal(tt_checkpoint_save("expected", model, NULL, &progress), TT_OK);
        assert_int_equal(tt_checkpoint_saver_save(saver, "got", model, NULL, &progress), TT_OK);
        memset(tt_tensor_data(tt_module_parameters(model)->tensors[0]), round, 4800); /* training goes on */
        assert_int_equal(tt_checkpoint_saver_wait(saver), TT_OK);
        size_t a, b;
        unsigned char *expected = file_bytes("expected", &a), *got = file_bytes("got", &b);
        assert_int_equal(a, b);
        assert_memory_equal(expected, got, a);
        free(expected);
        free(got);
        tt_module_free(now);
    }
    assert_int_equal(tt_checkpoint_saver_wait(saver), TT_OK); /* nothing is under way */
    tt_module_free(model);
    tt_checkpoint_saver_free(saver);
}

/* Another model's names and shapes need other copies; the optimizer's state is saved, too. */
static void models_may_change(void **state) {
    (void)state;
    tt_checkpoint_saver *saver = tt_checkpoint_saver_new();
    tt_module *a = make_model(1), *b = tt_nn_sequential(tt_nn_linear(3, 2), tt_nn_relu());
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(b), 0.1);
    assert_int_equal(tt_checkpoint_saver_save(saver, "a", a, NULL, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_saver_save(saver, "b", b, sgd, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_saver_save(saver, "a", a, NULL, NULL), TT_OK);
    tt_checkpoint_saver_free(saver); /* waits */
    assert_int_equal(tt_checkpoint_load("a", a, NULL, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_load("b", b, sgd, NULL), TT_OK);
    tt_optimizer_free(sgd);
    tt_module_free(a);
    tt_module_free(b);
}

static void errors_are_told_once(void **state) {
    (void)state;
    tt_checkpoint_saver *saver = tt_checkpoint_saver_new();
    tt_module *model = make_model(1);
    assert_int_equal(tt_checkpoint_saver_save(saver, "none/x", model, NULL, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_saver_wait(saver), TT_ERR_IO);
    expect_error(TT_ERR_IO, "none/x");
    assert_int_equal(tt_checkpoint_saver_wait(saver), TT_OK);
    assert_int_equal(tt_checkpoint_saver_save(saver, "none/x", model, NULL, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_saver_save(saver, "later", model, NULL, NULL), TT_ERR_IO);
    expect_error(TT_ERR_IO, "none/x");
    assert_int_equal(access("later", F_OK), -1);
    assert_int_equal(tt_checkpoint_saver_save(saver, "later", model, NULL, NULL), TT_OK);
    assert_int_equal(tt_checkpoint_saver_wait(saver), TT_OK);
    assert_int_equal(access("later", F_OK), 0);
    tt_progress wrong = {0};
    assert_int_equal(tt_checkpoint_saver_save(saver, "x", model, NULL, &wrong), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "TT_PROGRESS");
    assert_int_equal(tt_checkpoint_saver_save(saver, NULL, model, NULL, NULL), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_checkpoint_saver_save(saver, "x", NULL, NULL, NULL), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_checkpoint_saver_wait(NULL), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_checkpoint_saver_save(saver, "none/x", model, NULL, NULL), TT_OK);
    tt_checkpoint_saver_free(saver); /* nobody waited */
    expect_error(TT_ERR_IO, "none/x");
    tt_checkpoint_saver_free(NULL);
    tt_module_free(model);
}

static tt_status save_twice(void *model) {
    tt_checkpoint_saver *saver = tt_checkpoint_saver_new();
    tt_status status = saver ? tt_checkpoint_saver_save(saver, "c", model, NULL, NULL) : tt_last_status();
    if (!status)
        status = tt_checkpoint_saver_save(saver, "c", model, NULL, NULL);
    if (!status)
        status = tt_checkpoint_saver_wait(saver);
    tt_checkpoint_saver_free(saver);
    return status;
}

static void memory_that_runs_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    tt_module *model = make_model(1);
    assert_true(alloc_fail_each(save_twice, model, ALLOC_MAY_END) > 10);
    tt_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_of_the_call_is_saved),
        cmocka_unit_test(models_may_change),
        cmocka_unit_test(errors_are_told_once),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
