/* Learning rates (and momenta) of every scheduler are PyTorch's to the bit over 120 epochs, also where a program sets a
 * rate in between (tests/vectors/make_torch_optim.py), and also where training stops and goes on from state dicts. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "base/hash.h"
#include "unit/vectors.h"

enum { EPOCHS = 121 };

static tt_lr_scheduler *step(tt_optimizer *o) { return tt_step_lr(o, 7, .gamma = 0.7); }
static tt_lr_scheduler *multi_step(tt_optimizer *o) { return tt_multi_step_lr(o, ((int64_t[]){5, 20, 20, 63}), 4); }
static tt_lr_scheduler *exponential(tt_optimizer *o) { return tt_exponential_lr(o, 0.97); }
static tt_lr_scheduler *constant(tt_optimizer *o) { return tt_constant_lr(o, 1.0 / 3, 9); }
static tt_lr_scheduler *linear(tt_optimizer *o) { return tt_linear_lr(o, 0.1, 0.9, 25); }
static tt_lr_scheduler *linear_down(tt_optimizer *o) { return tt_linear_lr(o, 1, 0, 13); }
static tt_lr_scheduler *cosine(tt_optimizer *o) { return tt_cosine_annealing_lr(o, 17, .eta_min = 0.001); }
static tt_lr_scheduler *cosine_to_0(tt_optimizer *o) { return tt_cosine_annealing_lr(o, 150); }
static tt_lr_scheduler *restarts(tt_optimizer *o) {
    return tt_cosine_annealing_warm_restarts(o, 9, .T_mult = 2, .eta_min = 0.002);
}
static tt_lr_scheduler *restarts_equal(tt_optimizer *o) { return tt_cosine_annealing_warm_restarts(o, 13); }
static tt_lr_scheduler *one_cycle(tt_optimizer *o) { return tt_one_cycle_lr(o, 0.5, 125); }
static tt_lr_scheduler *three_phases(tt_optimizer *o) {
    return tt_one_cycle_lr(o, 0.5, 130, .pct_start = 0.4, .anneal_linear = true, .base_momentum = 0.7,
                           .max_momentum = 0.9, .div_factor = 10, .final_div_factor = 100, .three_phase = true);
}
static tt_lr_scheduler *no_momentum(tt_optimizer *o) { return tt_one_cycle_lr(o, 0.5, 125, .no_cycle_momentum = true); }

static double falling(int64_t epoch, int64_t group, void *user) {
    (void)group;
    (void)user;
    return 1 / (1 + 0.1 * (double)epoch);
}
static tt_lr_scheduler *by_function(tt_optimizer *o) { return tt_lambda_lr(o, falling, NULL); }

static tt_lr_scheduler *plateau(tt_optimizer *o) {
    return tt_reduce_lr_on_plateau(o, 3, .factor = 0.5, .cooldown = 2, .min_lr = 1e-4);
}
static tt_lr_scheduler *plateau_max(tt_optimizer *o) {
    return tt_reduce_lr_on_plateau(o, 0, .mode_max = true, .threshold = 0.05, .threshold_abs = true);
}
static tt_lr_scheduler *plateau_max_part(tt_optimizer *o) {
    return tt_reduce_lr_on_plateau(o, 1, .mode_max = true, .threshold = 0.01);
}
static tt_lr_scheduler *plateau_abs(tt_optimizer *o) {
    return tt_reduce_lr_on_plateau(o, 2, .factor = 0.3, .threshold = 0.02, .threshold_abs = true);
}

static tt_lr_scheduler *chained(tt_optimizer *o) {
    tt_lr_scheduler *all[] = {constant(o), exponential(o), cosine(o)};
    return tt_chained_scheduler(all, 3);
}
static tt_lr_scheduler *sequence(tt_optimizer *o) {
    tt_lr_scheduler *all[] = {linear(o), cosine(o), step(o), exponential(o)};
    return tt_sequential_lr(all, 4, ((int64_t[]){10, 30, 60}));
}
static tt_lr_scheduler *sequence_of_others(tt_optimizer *o) {
    tt_lr_scheduler *all[] = {constant(o), restarts(o), by_function(o), multi_step(o)};
    return tt_sequential_lr(all, 4, ((int64_t[]){8, 40, 70}));
}
static tt_lr_scheduler *chained_sequence(tt_optimizer *o) {
    tt_lr_scheduler *two[] = {linear(o), cosine_to_0(o)};
    tt_lr_scheduler *first = tt_sequential_lr(two, 2, ((int64_t[]){20})), *all[] = {first, step(o)};
    return tt_chained_scheduler(all, 2);
}

static const struct {
    const char *name;
    tt_lr_scheduler *(*make)(tt_optimizer *o);
} kinds[] = {{"step", step},
             {"multi_step", multi_step},
             {"exponential", exponential},
             {"constant", constant},
             {"linear", linear},
             {"linear_down", linear_down},
             {"cosine", cosine},
             {"cosine by hand", cosine},
             {"cosine_to_0", cosine_to_0},
             {"restarts", restarts},
             {"restarts_equal", restarts_equal},
             {"one_cycle", one_cycle},
             {"three_phases", three_phases},
             {"no_momentum", no_momentum},
             {"by_function", by_function},
             {"plateau", plateau},
             {"plateau_max", plateau_max},
             {"plateau_max_part", plateau_max_part},
             {"plateau_abs", plateau_abs},
             {"chained", chained},
             {"sequence", sequence},
             {"sequence of others", sequence_of_others},
             {"chained sequence", chained_sequence}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* An optimizer with two groups, and its scheduler. */
typedef struct training {
    tt_optimizer *optimizer;
    tt_lr_scheduler *scheduler;
} training;

static training begin(const json_t *c, tt_tensor **x) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const bool sgd = !strcmp(json_string_value(json_object_get(c, "optimizer")), "sgd");
    const char *const names[] = {"a", "b"};
    const tt_named_tensors *first = TT_NAMED_TENSORS(1, names, x), *second = TT_NAMED_TENSORS(1, names, x + 1);
    training t = {.optimizer = sgd ? tt_sgd(first, 0.1, .momentum = 0.9) : tt_adam(first, 0.1)};
    assert_int_equal(tt_optimizer_add_param_group(t.optimizer, second, .options = TT_OPTION_LIST({"lr", 0.03})), TT_OK);
    for (int k = 0; k < KINDS; k++)
        if (!strcmp(kinds[k].name, name))
            t.scheduler = kinds[k].make(t.optimizer);
    if (!t.scheduler)
        fail_msg("%s: %s", name, tt_last_error());
    return t;
}

static void end(training *t) {
    tt_lr_scheduler_free(t->scheduler);
    tt_optimizer_free(t->optimizer);
}

static double option(tt_optimizer *o, int64_t group, const char *name) {
    double value = -1;
    assert_int_equal(tt_optimizer_get_option(o, group, name, &value), TT_OK);
    return value;
}

/* Rates and momenta of both groups; the scheduler tells the same rates. */
static void read_groups(const training *t, const json_t *c, double *now) {
    const char *momentum = strcmp(json_string_value(json_object_get(c, "optimizer")), "sgd") ? "beta1" : "momentum";
    for (int64_t g = 0; g < 2; g++) {
        double last = -1;
        now[g] = option(t->optimizer, g, "lr");
        now[2 + g] = option(t->optimizer, g, momentum);
        assert_int_equal(tt_lr_scheduler_last_lr(t->scheduler, g, &last), TT_OK);
        assert_true(last == now[g]);
    }
}

static void go_on(const training *t, const json_t *c, int epoch) {
    const char *name = json_string_value(json_object_get(c, "name"));
    if (json_is_true(json_object_get(c, "by_hand")) && epoch == 40)
        assert_int_equal(tt_optimizer_set_option(t->optimizer, 0, "lr", 0.05), TT_OK);
    const double metric = 1 / (1 + epoch * 0.05) + (epoch % 7 == 3 ? 0.03 : 0);
    if (strstr(name, "plateau"))
        assert_int_equal(tt_lr_scheduler_step_metric(t->scheduler, strstr(name, "max") ? -metric : metric), TT_OK);
    else
        assert_int_equal(tt_lr_scheduler_step(t->scheduler), TT_OK);
    assert_int_equal(tt_lr_scheduler_last_epoch(t->scheduler), epoch + 1);
}

/* Go on in new objects, which were never trained. */
static void resume(training *t, const json_t *c, tt_tensor **x) {
    training other = begin(c, x);
    assert_int_equal(tt_optimizer_load_state_dict(other.optimizer, tt_optimizer_state_dict(t->optimizer)), TT_OK);
    if (tt_lr_scheduler_load_state_dict(other.scheduler, tt_lr_scheduler_state_dict(t->scheduler)))
        fail_msg("%s", tt_last_error());
    end(t);
    *t = other;
}

static void check_case(const json_t *c, int resume_at) {
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {tt_ones(TT_SHAPE(1), TT_F32), tt_ones(TT_SHAPE(1), TT_F32)};
    training t = begin(c, x);
    uint64_t digest = TT__FNV;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        double now[4];
        read_groups(&t, c, now);
        digest = tt__fnv_bytes(digest, now, sizeof now);
        const json_t *want = epoch % 12 ? NULL : json_array_get(json_object_get(c, "lrs"), (size_t)epoch / 12);
        for (size_t i = 0; want && i < 4; i++)
            if (now[i] != vectors_number(want, i))
                fail_msg("%s, epoch %d, number %zu: expected %.17g, got %.17g",
                         json_string_value(json_object_get(c, "name")), epoch, i, vectors_number(want, i), now[i]);
        go_on(&t, c, epoch);
        if (epoch == resume_at)
            resume(&t, c, x);
    }
    char bits[20];
    snprintf(bits, sizeof bits, "%016" PRIx64, digest);
    if (strcmp(bits, json_string_value(json_object_get(c, "bits"))))
        fail_msg("%s: other rates than PyTorch's between those that are listed",
                 json_string_value(json_object_get(c, "name")));
    end(&t);
}

static void check_all(int resume_at) {
    json_t *vectors = vectors_load("torch-optim.json");
    assert_non_null(vectors);
    const json_t *cases = json_object_get(vectors, "schedulers");
    assert_int_equal(json_array_size(cases), 2 * KINDS);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i), resume_at);
    json_decref(vectors);
}

static void rates_are_pytorchs_to_the_bit(void **state) {
    (void)state;
    check_all(-1);
}

static void resumed_rates_are_the_same(void **state) {
    (void)state;
    check_all(5);
    check_all(39);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_pytorchs_to_the_bit),
        cmocka_unit_test(resumed_rates_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
