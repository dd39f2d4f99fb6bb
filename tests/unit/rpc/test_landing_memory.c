/* Memory that large parts of messages land in: what is given back serves the next part, within bounds. */
#include "rpc/values/landing_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static const size_t big = (size_t)16 << 20;

static bool is_mapped(void *at) {
    unsigned char page;
    return !mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &page);
}

static int count_mapped(void **blocks, int count) {
    int mapped = 0;
    for (int i = 0; i < count; i++)
        mapped += is_mapped(blocks[i]);
    return mapped;
}

static void any_size_is_whole_and_aligned(void **state) {
    static const size_t sizes[] = {0, 1, 63, 4096, TT__LANDING_LARGE - 1, TT__LANDING_LARGE, 1000001, (2 << 20) + 1};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *data = tt__landing_take(sizes[i]);
        assert_non_null(data);
        assert_int_equal((uintptr_t)data % 64, 0);
        memset(data, 1, sizes[i]);
        tt__landing_give(data);
    }
    assert_null(tt__landing_take(SIZE_MAX));
    if (!getenv("TT_SANITIZED")) /* which ends the process there */
        assert_null(tt__landing_take(SIZE_MAX / 8));
    tt__landing_give(NULL);
}

static void the_next_part_takes_what_was_given_last(void **state) {
    void *first = tt__landing_take(big), *second = tt__landing_take(big);
    (void)state;
    tt__landing_give(first);
    tt__landing_give(second);
    assert_ptr_equal(tt__landing_take(big - 5000), second);
    void *small = tt__landing_take(big / 4);
    assert_ptr_not_equal(small, first); /* which would be wasted on it */
    tt__landing_give(small);
    tt__landing_give(second);
    tt__landing_release_kept();
    assert_false(is_mapped(first) || is_mapped(second) || is_mapped(small));
}

static void what_is_kept_is_bounded(void **state) {
    void *blocks[40];
    (void)state;
    for (int i = 0; i < 10; i++)
        blocks[i] = tt__landing_take(big - 100);
    for (int i = 0; i < 10; i++)
        tt__landing_give(blocks[i]);
    assert_int_equal(count_mapped(blocks, 10), 4); /* 64 MiB */
    assert_true(is_mapped(blocks[9]));
    for (int i = 0; i < 40; i++)
        blocks[i] = tt__landing_take(TT__LANDING_LARGE);
    for (int i = 0; i < 40; i++)
        tt__landing_give(blocks[i]);
    tt__landing_release_kept();
    assert_int_equal(count_mapped(blocks, 40), 0);
    void *huge = tt__landing_take((size_t)65 << 20);
    tt__landing_give(huge);
    assert_false(is_mapped(huge));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size_is_whole_and_aligned),
        cmocka_unit_test(the_next_part_takes_what_was_given_last),
        cmocka_unit_test(what_is_kept_is_bounded),
    };
    const struct CMUnitTest blind[] = {
        cmocka_unit_test(any_size_is_whole_and_aligned), /* the address sanitizer's memory is malloc()'s */
    };
    return getenv("TT_SANITIZED") ? cmocka_run_group_tests(blind, NULL, NULL)
                                  : cmocka_run_group_tests(tests, NULL, NULL);
}
