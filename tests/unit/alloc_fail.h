/* Memory that runs out: each allocation of a program fails once, the first, the second, ... until the program succeeds.
 * Include it in one test program's only source. */
#ifndef TT_TESTS_UNIT_ALLOC_FAIL_H
#define TT_TESTS_UNIT_ALLOC_FAIL_H

#include "alloc_count.h"
#include "tensor/core/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <tutti/base.h>

/* The nth allocation of the program's own from now on fails; 1: the next. */
static inline void alloc_fail_nth(long n) { alloc_fail_own = alloc_count_own + n; }

/* None fails any more. Has the one that was to fail? */
static inline bool alloc_fail_end(void) {
    bool failed = alloc_count_own >= alloc_fail_own;
    alloc_fail_own = 0;
    return failed;
}

/* Permitted consequence of a failed allocation. */
typedef enum alloc_outcome {
    ALLOC_ENDS,   /* TT_ERR_MEMORY always */
    ALLOC_MAY_END /* any error with a text, or none: other threads may feel it, or nobody */
} alloc_outcome;

/* Blocks of the program's own, without those that wait in the tensors' pool. */
static inline long alloc_in_use(void) {
    tt__pool_trim();
    return alloc_live_own;
}

/* Run `program(arg)` until no allocation is left to fail. It succeeds before, when caches are still empty, and after.
 * A round must end as `outcome` says, and with as much memory in use as before. Returns the number of rounds. */
static inline int alloc_fail_each(tt_status (*program)(void *), void *arg, alloc_outcome outcome) {
    int rounds = 0;
    assert_int_equal(program(arg), TT_OK);
    assert_int_equal(program(arg), TT_OK);
    for (bool failed = true; failed; rounds++) {
        long before = alloc_in_use();
        tt_clear_error();
        alloc_fail_nth(rounds + 1);
        tt_status status = program(arg);
        failed = alloc_fail_end();
        bool right = status ? failed && *tt_last_error() : !failed || outcome == ALLOC_MAY_END;
        if (!right || (status && outcome == ALLOC_ENDS && status != TT_ERR_MEMORY))
            fail_msg("allocation %d failed: %s: %s", rounds + 1, tt_status_name(status), tt_last_error());
        tt_clear_error();
        if (alloc_in_use() != before)
            fail_msg("allocation %d failed: %ld blocks stay in use", rounds + 1, alloc_in_use() - before);
    }
    assert_int_equal(program(arg), TT_OK);
    return rounds;
}

#endif
