/* Memory runs out in communication hooks: each allocation fails once. An attach that failed can be tried again, and the
 * hook then remembers errors as it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "parallel/ddp/ddp.h"
#include "unit/alloc_fail.h"

static tt_status set_int8(tt_module *ddp) { return tt_int8_hook(ddp, .block = 64); }
static tt_status set_top_k(tt_module *ddp) { return tt_top_k_hook(ddp, .density = 0.05); }
static tt_status set_power(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2, .start = -1); }

typedef tt_status set_fn(tt_module *ddp);

static tt_status backward(tt_module *ddp) {
    TT_AUTO_SCOPE;
    return tt_backward(tt_sum(tt_module_forward(ddp, tt_ones(TT_SHAPE(2, 30), TT_F32))));
}

static const tt_tensor *find_error(const tt_named_tensors *state) {
    for (int64_t i = 0; state && i < state->count; i++)
        if (strstr(state->names[i], ".error.weight"))
            return state->tensors[i];
    return NULL;
}

/* Bind, and again where that failed; errors are fed back then. */
static tt_status bind_and_step(tt_module *ddp, tt_group *group) {
    tt_status failed = tt__ddp_bind(ddp, group);
    if (failed && tt__ddp_bind(ddp, group))
        fail_msg("the second attempt: %s", tt_last_error());
    tt_status status = backward(ddp);
    if (status)
        return status;
    const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
    if (!state)
        return tt_last_status();
    assert_non_null(find_error(state));
    status = tt_comm_hook_load_state_dict(ddp, state);
    return failed ? failed : status;
}

static tt_status program(void *arg) {
    set_fn *set = *(set_fn *const *)arg;
    tt_group *group = NULL;
    tt_status status = tt_init_process_group(&group, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1);
    if (status)
        return status;
    tt_module *model = tt_nn_linear(30, 40), *ddp = model ? tt__ddp_make(&(tt_ddp_args){.module = model}) : NULL;
    status = ddp ? set(ddp) : tt_last_status();
    if (!status)
        status = bind_and_step(ddp, group);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return status;
}

static void every_allocation_may_fail(void **state) {
    static set_fn *const sets[] = {set_int8, set_top_k, set_power};
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    for (size_t h = 0; h < sizeof sets / sizeof *sets; h++) {
        set_fn *set = sets[h];
        /* a wrapper that ends may find no room to give a gradient memory of its own: nobody needs it then */
        assert_in_range(alloc_fail_each(program, &set, ALLOC_MAY_END), 50, 3000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
