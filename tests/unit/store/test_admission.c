/* Who makes room when a store is short of descriptors. */
#include "base/machine/clock.h"
#include "store/server/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static tt__admission admission;

static int setup(void **state) {
    (void)state;
    return tt__admission_init(&admission, TT_STORE_AUTH_LOCAL, "", 0, SIZE_MAX) != TT_OK;
}

static int teardown(void **state) {
    (void)state;
    tt__admission_free(&admission);
    return 0;
}

static void those_who_just_came_stay(void **state) {
    (void)state;
    tt__pending_peer pending = {0}, silent = {0};
    tt__admission_list_pending(&admission, &pending, 1);
    tt__admission_list_silent(&admission, &silent);
    assert_null(tt__admission_oldest(&admission));
    silent.movable_ms = tt__now_ms();
    assert_ptr_equal(tt__admission_oldest(&admission), &silent);
    pending.movable_ms = tt__now_ms();
    assert_ptr_equal(tt__admission_oldest(&admission), &pending);
    tt__admission_remove(&admission, &pending);
    tt__admission_remove(&admission, &silent);
    assert_null(tt__admission_oldest(&admission));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_who_just_came_stay, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
