/* What tests of data sets and loaders share: a data set whose examples tell their number. */
#ifndef TT_TESTS_UNIT_DATA_CASES_H
#define TT_TESTS_UNIT_DATA_CASES_H

#include <tutti/data.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* n examples: input i is {2i, 2i+1} in f32, target i is 10i. */
static inline tt_dataset *numbered(int64_t n) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to(tt_view(tt_arange(2 * n), TT_SHAPE(n, 2)), TT_F32), *y = tt_arange(n);
    for (int64_t i = 0; i < n; i++)
        tt_tensor_i64(y)[i] *= 10;
    return tt_tensor_dataset(tt_keep(x), y); /* whoever owned them, the data set has them now */
}

static inline void assert_batch(const tt_batch *b, const int64_t *want, int64_t n) {
    char text[64], shape[64];
    snprintf(shape, sizeof shape, "f32 (%d, 2)", (int)n);
    assert_int_equal(b->size, n);
    assert_string_equal(tt_tensor_describe(b->x, text, sizeof text), shape);
    assert_int_equal(tt_tensor_numel(b->y), n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(b->indices[i], want[i]);
        assert_int_equal(tt_tensor_i64(b->y)[i], 10 * want[i]);
        assert_true(tt_tensor_f32(b->x)[2 * i] == (float)(2 * want[i]));
        assert_true(tt_tensor_f32(b->x)[2 * i + 1] == (float)(2 * want[i] + 1));
    }
}

#endif
