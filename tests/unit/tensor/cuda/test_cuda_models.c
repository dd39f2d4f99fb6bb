/* Whole models trained on the CUDA device, on its fake (test_cuda.c), beside the cpu: the losses of each step. 50 steps
 * of each; of those that take long, in the long form alone. TT_MODEL=gpt: one of them. A model whose steps make much of
 * the last bits begins each step from the cpu's parameters and state; then its gradients are compared, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "cuda_compare.h"

static const double MOST_APART = 0.25;
enum { MOST_STEPS = 50, IMAGES = 4, TEXTS = 2, TOKENS = 8, WORDS = 23 };

typedef struct trained {
    const char *name;
    int steps; /* in the gate's form */
    tt_module *(*make)(void);
    tt_optimizer *(*optimizer)(tt_module *model);
    void (*batch)(tt_tensor **x, tt_tensor **y); /* drawn from the thread's generator */
    tt_tensor *(*loss)(tt_tensor *y, tt_tensor *target);
    bool follows; /* each step begins with the cpu's state */
} trained;

/* ---- models */

static tt_module *make_mlp(void) { return tt_model_mlp(TT_SIZES(784, 64, 10)); }
static tt_module *make_mnist(void) { return tt_model_mnist_convnet(0.25, 0.5); }
static tt_module *make_resnet(void) { return tt_model_resnet18(10, .small_input = true); }
static tt_module *make_gpt(void) { return tt_model_gpt(WORDS, TOKENS, 16, 1, 2); }
static tt_module *make_gpt2(void) {
    return tt_model_gpt2(WORDS, TOKENS, 16, 1, 2, .embd_pdrop = 0.1, .attn_pdrop = 0.1, .resid_pdrop = 0.1);
}

static tt_optimizer *with_sgd(tt_module *model) { return tt_sgd(tt_module_parameters(model), 0.01, .momentum = 0.9); }
static tt_optimizer *with_adadelta(tt_module *model) { return tt_adadelta(tt_module_parameters(model), 1.0); }
static tt_optimizer *with_adamw(tt_module *model) { return tt_adamw(tt_module_parameters(model), 3e-3, 0.01); }
static tt_optimizer *with_little_sgd(tt_module *model) {
    return tt_sgd(tt_module_parameters(model), 1e-3, .momentum = 0.9);
}

/* ---- batches that can be learned from */

/* Noisy pictures of one of two patterns each. */
static void draw_images(int64_t channels, int64_t side, tt_tensor **x, tt_tensor **y) {
    *y = tt_randint(0, 2, S(IMAGES), NULL);
    tt_tensor *noise = tt_randn(S(IMAGES, channels, side, side), NULL);
    tt_tensor *wave = tt_empty(S(1, channels, side, side), TT_F32);
    for (int64_t i = 0; i < tt_tensor_numel(wave); i++)
        tt_tensor_f32(wave)[i] = (float)sin(0.37 * (double)i);
    tt_tensor *sign = tt_view(tt_add_scalar(tt_scale(tt_to(*y, TT_F32), 2), -1), S(IMAGES, 1, 1, 1));
    *x = tt_add(tt_scale(noise, 0.5), tt_mul(sign, wave));
}

static void digits(tt_tensor **x, tt_tensor **y) { draw_images(1, 28, x, y); }
static void pictures(tt_tensor **x, tt_tensor **y) { draw_images(3, 8, x, y); }

/* Each word follows from the one before. */
static void texts(tt_tensor **x, tt_tensor **y) {
    tt_tensor *first = tt_randint(0, WORDS, S(TEXTS), NULL);
    *x = tt_zeros(S(TEXTS, TOKENS), TT_I64);
    *y = tt_zeros(S(TEXTS, TOKENS), TT_I64);
    for (int b = 0; b < TEXTS; b++)
        for (int64_t t = 0, word = tt_tensor_i64(first)[b]; t < TOKENS; t++) {
            tt_tensor_i64(*x)[b * TOKENS + t] = word;
            tt_tensor_i64(*y)[b * TOKENS + t] = word = (word * 5 + 3) % WORDS;
        }
}

static tt_tensor *loss_of_logits(tt_tensor *y, tt_tensor *target) {
    return tt_cross_entropy(tt_reshape(y, S(-1, tt_tensor_size(y, -1))), tt_reshape(target, S(-1)));
}
static tt_tensor *loss_of_logs(tt_tensor *y, tt_tensor *target) { return tt_nll_loss(y, target); }

/* ---- training */

static const trained all[] = {
    {"mlp", 50, make_mlp, with_sgd, digits, loss_of_logits, false},
    {"gpt", 50, make_gpt, with_adamw, texts, loss_of_logits, false},
    {"gpt2", 5, make_gpt2, with_adamw, texts, loss_of_logits, false},
    {"mnist", 2, make_mnist, with_adadelta, digits, loss_of_logs, false},
    /* Batch norm of four values makes three times as much of a difference in each step, whatever it was at first. */
    {"resnet18", 1, make_resnet, with_little_sgd, pictures, loss_of_logits, true},
};

typedef struct run {
    tt_module *model;
    tt_optimizer *optimizer;
} run;

static run begin_run(const trained *t, const tt_device *device) {
    tt_manual_seed(1);
    run r = {.model = t->make()};
    assert_int_equal(tt_module_to_device(r.model, device), TT_OK);
    r.optimizer = t->optimizer(r.model);
    return r;
}

static void end_run(run *r) {
    tt_optimizer_free(r->optimizer);
    tt_module_free(r->model);
}

static double take_step(const trained *t, const run *r, int step) {
    TT_AUTO_SCOPE;
    const tt_device *device = tt_tensor_device(tt_module_parameters(r->model)->tensors[0]);
    tt_tensor *x, *y;
    double loss = 0;
    tt_manual_seed((uint64_t)step + 100);
    t->batch(&x, &y);
    tt_tensor *l = t->loss(tt_module_forward(r->model, tt_to_device(x, device)), tt_to_device(y, device));
    tt_optimizer_zero_grad(r->optimizer);
    if (tt_backward(l) || tt_item(l, &loss) || tt_optimizer_step(r->optimizer))
        fail_msg("%s, step %d: %s", t->name, step, tt_last_error());
    return loss;
}

static void copy_tensors(const tt_named_tensors *to, const tt_named_tensors *from) {
    TT_NO_GRAD;
    assert_int_equal(to->count, from->count);
    for (int64_t i = 0; i < to->count; i++)
        if (tt_copy(to->tensors[i], from->tensors[i]))
            fail_msg("%s: %s", to->names[i], tt_last_error());
}

static double sum_of_squares(tt_tensor *x) {
    double sum = 0;
    assert_int_equal(tt_item(tt_sum(tt_mul(x, x)), &sum), TT_OK);
    return sum;
}

/* How far apart are the momenta, which a step's gradients are part of, in all? */
static double momenta_apart(const run *far, const run *near) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *a = tt_optimizer_state_dict(far->optimizer), *b = tt_optimizer_state_dict(near->optimizer);
    double apart = 0, all = 0;
    assert_true(a->count == b->count && a->count > 0);
    for (int64_t i = 0; i < a->count; i++) {
        tt_tensor *expected = tt_to(b->tensors[i], TT_F64);
        apart += sum_of_squares(tt_sub(tt_to(here(a->tensors[i]), TT_F64), expected));
        all += sum_of_squares(expected);
    }
    return sqrt(apart / all);
}

static void take_over(const run *to, const run *from) {
    copy_tensors(tt_module_state_dict(to->model), tt_module_state_dict(from->model));
    copy_tensors(tt_optimizer_state_dict(to->optimizer), tt_optimizer_state_dict(from->optimizer));
}

/* Train on both devices; return the largest difference of losses. */
static double train_both(const trained *t, int steps, double *first, double *last) {
    run near = begin_run(t, TT_CPU), far = begin_run(t, TT_CUDA(0));
    double most = 0;
    for (int step = 0; step < steps; step++) {
        double expected = take_step(t, &near, step);
        *last = take_step(t, &far, step);
        *first = step ? *first : *last;
        double d = fabs(expected - *last);
        most = d <= most ? most : d;
        if (!t->follows)
            continue;
        double apart = momenta_apart(&far, &near);
        if (!(apart <= MOST_APART)) /* a few units on the other side of a relu are a few hundredths */
            fail_msg("%s, step %d: the momenta are %g of theirs away from the cpu's", t->name, step, apart);
        take_over(&far, &near);
    }
    end_run(&near);
    end_run(&far);
    return most;
}

static void models_train_to_the_cpus_losses(void **state) {
    (void)state;
    const char *only = getenv("TT_MODEL");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const trained *t = &all[i];
        const int steps = getenv("TT_LONG") ? MOST_STEPS : getenv("TT_SANITIZED") && t->steps > 3 ? 3 : t->steps;
        double first = 0, last = 0;
        if (only && strcmp(only, t->name) != 0)
            continue;
        if (getenv("TT_SANITIZED") && t->make == make_resnet) /* a minute there, of kernels that the others have */
            continue;
        const double most = train_both(t, steps, &first, &last);
        printf("%s: %d steps, loss %.4f to %.4f, differs by at most %.2g\n", t->name, steps, first, last, most);
        if (!(most <= 1e-4))
            fail_msg("%s is %g away from the cpu's losses", t->name, most);
        if (steps == MOST_STEPS)
            assert_true(last < 0.7 * first); /* it learns */
    }
}

int main(void) {
    if (!cuda_choose())
        return 77;
    setenv("FAKE_CUDA_MEMORY", "1024", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_train_to_the_cpus_losses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
