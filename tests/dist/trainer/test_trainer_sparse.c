/* The trainer with a table that has sparse gradients, on two ranks: a run that goes on from a checkpoint ends with the
 * bits of one in one piece, and learns what the same table learns with gradients of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/own_folder.h"
#include "support/ranks.h"
#include "support/trainer_cases.h"

#include <math.h>

enum { WORDS = 12, LENGTH = 3 };

/* Three words in, the class of their sum out. */
static tt_dataset *word_data(void) {
    int64_t word[CASE_EXAMPLES * LENGTH], class[CASE_EXAMPLES];
    for (int i = 0; i < CASE_EXAMPLES; i++) {
        class[i] = 0;
        for (int k = 0; k < LENGTH; k++)
            class[i] += word[i * LENGTH + k] = (i * 7 + k * k * 5) % WORDS;
        class[i] %= 3;
    }
    return tt_tensor_dataset(tt_keep(tt_from_data(word, TT_SHAPE(CASE_EXAMPLES, LENGTH), TT_I64)),
                             tt_keep(tt_from_data(class, TT_SHAPE(CASE_EXAMPLES), TT_I64)));
}

static void make_words(trainer_case *c, int rank, int world, bool sparse) {
    tt_manual_seed(7);
    *c = (trainer_case){0};
    c->model =
        tt_nn_sequential(tt_nn_embedding(WORDS, 4, .sparse = sparse), tt_nn_flatten(), tt_nn_linear(LENGTH * 4, 3));
    c->optimizer = tt_adagrad(tt_module_parameters(c->model), 0.1);
    c->scheduler = tt_step_lr(c->optimizer, 1, .gamma = 0.9);
    TT_AUTO_SCOPE;
    c->data = word_data();
    c->sampler = tt_distributed_sampler(CASE_EXAMPLES, world, rank, .seed = CASE_SEED);
    c->loader = tt_loader_new(c->data, 4, c->sampler);
    CHECK(c->scheduler && c->loader);
}

static tt_status run_words(trainer_case *c, tt_group *group, int64_t max_steps, const char *checkpoint,
                           const char *resume) {
    return tt_trainer_run(c->model, c->optimizer, c->loader, case_step, .group = group, .sampler = c->sampler,
                          .epochs = 3, .max_steps = max_steps, .accumulate = 2, .clip_norm = 0.5,
                          .scheduler = c->scheduler, .checkpoint = checkpoint, .resume = resume);
}

static void resume_words(tt_group *group, int rank, void *user) {
    (void)user;
    trainer_case whole, first, second, dense;
    make_words(&whole, rank, 2, true);
    make_words(&first, rank, 2, true);
    make_words(&second, rank, 2, true);
    make_words(&dense, rank, 2, false);
    CHECK_OK(run_words(&whole, group, 0, NULL, NULL));
    CHECK_OK(run_words(&first, group, 4, "words", NULL));
    CHECK_OK(run_words(&second, group, 0, NULL, "words"));
    CHECK(case_equal(&whole, &second) && !case_equal(&whole, &first));
    CHECK_OK(run_words(&dense, group, 0, NULL, NULL));
    const tt_named_tensors *a = tt_module_parameters(whole.model), *b = tt_module_parameters(dense.model);
    for (int64_t i = 0; i < a->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(a->tensors[i]); k++)
            CHECK(fabs((double)(tt_tensor_f32(a->tensors[i])[k] - tt_tensor_f32(b->tensors[i])[k])) < 1e-5);
    case_free(&whole);
    case_free(&first);
    case_free(&second);
    case_free(&dense);
}

static void a_run_that_goes_on(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, resume_words, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_that_goes_on)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
