/* A steady-state training step on two ranks allocates nothing in Tutti's code. The allocator's calls are counted by
 * their caller: this program is linked statically with Tutti, so what is called from within it is ours; libraries
 * (oneDNN, OpenMP) are counted apart. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "base/build.h"
#include "support/ranks.h"

#if defined(__GLIBC__) && !TT__ASAN && !TT__TSAN
static volatile long ours, others;

extern const char __executable_start, etext;
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* Inlined into its caller, a function would see the wrong return address. */
#define NOT_INLINED __attribute__((noinline))

static void count(const void *caller) {
    if ((const char *)caller >= &__executable_start && (const char *)caller < &etext)
        ours++;
    else
        others++;
}

NOT_INLINED void *malloc(size_t size) {
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}

NOT_INLINED void *calloc(size_t n, size_t size) {
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

NOT_INLINED void *realloc(void *p, size_t size) {
    count(__builtin_return_address(0));
    return __libc_realloc(p, size);
}

NOT_INLINED void *aligned_alloc(size_t alignment, size_t size) {
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

NOT_INLINED int posix_memalign(void **out, size_t alignment, size_t size) {
    count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}

/* One step of a trainer: a batch from the loader, forward, backward with averaging, the optimizer. */
static void step(tt_module *ddp, tt_optimizer *sgd, const tt_batch *b) {
    TT_AUTO_SCOPE;
    double value;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *logits = tt_module_forward(ddp, b->x), *loss = tt_cross_entropy(logits, b->y);
    CHECK(tt_backward(loss) == TT_OK);
    CHECK(tt_optimizer_step(sgd) == TT_OK);
    CHECK(tt_item(loss, &value) == TT_OK);
    CHECK(tt_argmax(logits, 1));
}

static tt_optimizer *make_sgd(const tt_named_tensors *params, void *user) {
    (void)user;
    return tt_sgd(params, 0.1, .momentum = 0.9);
}

static void train(tt_group *group, int rank, void *user) {
    const int *zero_stage = user;
    tt_manual_seed(0);
    tt_dataset *digits = tt_digits(600, 1);
    CHECK(digits && tt_dataset_normalize(digits, 0.1307, 0.3081) == TT_OK);
    tt_sampler *sampler = tt_distributed_sampler(600, tt_get_world_size(group), rank);
    tt_loader *loader = tt_loader_new(digits, 32, sampler);
    tt_module *model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 64), tt_nn_relu(), tt_nn_linear(64, 10));
    tt_module *ddp = tt_ddp(model, group);
    tt_optimizer *sgd = *zero_stage ? tt_zero_optimizer(ddp, make_sgd, NULL, .stage = *zero_stage)
                                    : make_sgd(tt_module_parameters(ddp), NULL);
    CHECK(loader && ddp && sgd);
    tt_batch b;
    for (int epoch = 0; epoch < 4; epoch++) {
        long ours_before = ours, others_before = others;
        tt_sampler_set_epoch(sampler, epoch);
        while (tt_loader_next(loader, &b) > 0)
            step(ddp, sgd, &b);
        long now = ours - ours_before;
        if (epoch >= 2 && rank == 0)
            print_message("epoch %d: %ld calls of the allocator by Tutti, %ld by libraries\n", epoch, now,
                          others - others_before);
        CHECK(epoch < 2 || now == 0);
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_loader_free(loader);
    tt_sampler_free(sampler);
    tt_dataset_free(digits);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    volatile long before = ours;
    void *volatile kept = malloc(1); /* volatile: else the compiler leaves the call out */
    free(kept);
    assert_int_equal(ours, before + 1); /* the counter works */
    for (int zero_stage = 0; zero_stage <= 2; zero_stage++)
        assert_int_equal(run_ranks(2, train, &zero_stage), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    puts("skipped: this build has an allocator of its own, whose calls can't be counted");
    return 77;
}
#endif
