/* The hash of a tensor's values: of its elements in order, whatever their layout, type and device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "tensor/shape/copy.h"

static uint64_t hash_of(const tt_tensor *x) {
    uint64_t hash = TT__FNV;
    assert_non_null(x);
    assert_int_equal(tt__hash_values(&hash, x), TT_OK);
    return hash;
}

static void layout_and_device_do_not_matter(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(5, 7), NULL), *turned = tt_transpose(x, 0, 1);
    assert_false(tt_is_contiguous(turned));
    assert_true(hash_of(turned) == hash_of(tt_contiguous(turned)));
    assert_true(hash_of(turned) != hash_of(x));
    assert_true(hash_of(tt_to_device(x, tt_device_get("reference"))) == hash_of(x));
    assert_true(hash_of(tt_zeros(TT_SHAPE(0), TT_F32)) == TT__FNV);
}

/* Each single element counts, the last ones of types that fill no word included; and one hash goes on. */
static void each_element_counts(void **state) {
    (void)state;
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16, TT_I64, TT_U8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_zeros(TT_SHAPE(7), types[t]);
        const uint64_t plain = hash_of(x);
        for (size_t byte = 0; byte < 7 * tt_dtype_size(types[t]); byte++) {
            unsigned char *data = tt_tensor_data(x);
            data[byte] = 128;
            assert_true(hash_of(x) != plain);
            data[byte] = 0;
        }
        uint64_t twice = plain;
        assert_int_equal(tt__hash_values(&twice, x), TT_OK);
        assert_true(twice != plain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_and_device_do_not_matter),
        cmocka_unit_test(each_element_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
