/* Error feedback of a parameter that no rank uses in a step: nothing of it is applied, so that its errors stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { ROWS = 40, COLUMNS = 30, N = ROWS * COLUMNS };

static tt_status set_top_k(tt_module *ddp) { return tt_top_k_hook(ddp, .density = 0.05); }
static tt_status set_int8(tt_module *ddp) { return tt_int8_hook(ddp, .block = 64); }
static tt_status set_power(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2, .start = -1); }

/* What the next pass does on this rank. */
typedef struct use {
    bool a; /* is used; "b" always is */
    int rank;
} use;

static tt_tensor *forward(tt_module *self, tt_tensor *x) {
    const use *use = tt_module_user(self);
    const tt_named_tensors *p = tt_module_parameters(self);
    tt_tensor *weights = tt_empty(TT_SHAPE(ROWS, COLUMNS), TT_F32);
    for (int i = 0; i < N; i++)
        tt_tensor_f32(weights)[i] = (float)((i * 37 + use->rank * 11) % 101 - 50) / 64;
    tt_tensor *sum = tt_add(tt_sum(x), tt_sum(tt_mul(p->tensors[1], weights)));
    return use->a ? tt_add(sum, tt_sum(tt_mul(p->tensors[0], weights))) : sum;
}

/* All errors of "a" that this rank has, and those of averages. */
static void get_errors(tt_module *ddp, const char *hook, float *to) {
    char name[64];
    snprintf(name, sizeof name, "%s.error.a", hook);
    const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
    memcpy(to, tt_tensor_f32(tt_named_tensors_find(state, name)), N * sizeof *to);
    tt_tensor *more = tt_named_tensors_find(state, "int8.average_error.1"); /* buckets go backwards: that of "a" */
    for (int i = 0; more && i < tt_tensor_numel(more); i++)
        to[N + i] = tt_tensor_f32(more)[i];
}

static bool are_some(const float *x) {
    int count = 0;
    for (int i = 0; i < N; i++)
        count += x[i] != 0;
    return count > N / 2;
}

static void skip_a(tt_group *group, int rank, void *user) {
    static const struct {
        const char *name;
        tt_status (*set)(tt_module *);
    } hooks[] = {{"top_k", set_top_k}, {"int8", set_int8}, {"powersgd", set_power}};
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Partly", .forward = forward);
    (void)user;
    for (size_t h = 0; h < sizeof hooks / sizeof *hooks; h++) {
        static float before[3 * N], after[3 * N];
        use use = {true, rank};
        tt_module *m = tt_module_new(&cls, &use);
        CHECK_OK(tt_module_register_parameter(m, "a", tt_zeros(TT_SHAPE(ROWS, COLUMNS), TT_F32)));
        CHECK_OK(tt_module_register_parameter(m, "b", tt_zeros(TT_SHAPE(ROWS, COLUMNS), TT_F32)));
        tt_module *ddp = tt_ddp(m, group, .bucket_cap_bytes = 1);
        CHECK_OK(hooks[h].set(ddp));
        for (int step = 0; step < 6; step++) { /* "a" is used by both, none, none, both, rank 0, none */
            TT_AUTO_SCOPE;
            use.a = step % 3 == 0 || (step == 4 && rank == 0);
            for (int p = 0; p < 2 && step != 2; p++) /* in step 2 an old gradient stands there */
                tt_zero_grad(tt_module_parameters(m)->tensors[p]);
            get_errors(ddp, hooks[h].name, before);
            CHECK_OK(tt_backward(tt_module_forward(ddp, tt_zeros(TT_SHAPE(1), TT_F32))));
            get_errors(ddp, hooks[h].name, after);
            if (step == 1 || step == 2 || step == 5)
                CHECK(are_some(before) && !memcmp(before, after, sizeof before));
            else
                CHECK(memcmp(before, after, sizeof before) != 0);
        }
        tt_module_free(ddp);
        tt_module_free(m);
    }
}

static void errors_stay_where_no_rank_uses_a_parameter(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, skip_a, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_stay_where_no_rank_uses_a_parameter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
