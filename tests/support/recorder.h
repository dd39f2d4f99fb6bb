/* A flight recorder for each test of a file: cmocka_unit_test_setup_teardown(test, recorder_setup,
 * recorder_teardown). */
#ifndef TESTS_SUPPORT_RECORDER_H
#define TESTS_SUPPORT_RECORDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/record/recorder.h"

#include <stdlib.h>
#include <string.h>

static tt__recorder *recorder; /* of rank 3 of 8; in pages of its own */

static inline int recorder_setup(void **state) {
    size_t size = (sizeof *recorder + 4095) & ~(size_t)4095;
    (void)state;
    recorder = aligned_alloc(4096, size);
    if (!recorder)
        return -1;
    memset((void *)recorder, 0, size);
    tt__recorder_init(recorder, 3, 8);
    return 0;
}

static inline int recorder_teardown(void **state) {
    (void)state;
    free(recorder);
    return 0;
}

/* Read it as another process does: from now on `recorder` is a copy. */
static inline void read_by_another(void) {
    tt__recorder *theirs = recorder;
    assert_int_equal(recorder_setup(NULL), 0);
    assert_true(tt__recorder_copy(recorder, theirs));
    free(theirs);
}

#endif
