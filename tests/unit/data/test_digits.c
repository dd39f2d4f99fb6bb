/* The built-in digits: reproducible, in MNIST's conventions, and such that digits can be told apart. */
#include "unit/base/sha256.h"

#include <tutti/data.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIXELS = 28 * 28 };

static void the_same_everywhere(void **state) {
    (void)state;
    char hex[65];
    tt_dataset *d = tt_digits(500, 0);
    assert_non_null(d);
    assert_string_equal(sha256_hex(hex, tt_tensor_data(tt_dataset_inputs(d)), 500 * PIXELS),
                        "93684d255f777a0e1d0f40fe3909a67ffbaa92c6854a0f2827f2e3a43352004c");
    assert_string_equal(sha256_hex(hex, tt_tensor_data(tt_dataset_targets(d)), 500 * 8),
                        "922278dfb540d0511641283789683d4493da6936582340d8977ab17193213d81");
    tt_dataset_free(d);
}

static void shapes_are_those_of_images(void **state) {
    (void)state;
    char text[64];
    tt_dataset *d = tt_digits(3, 9);
    assert_int_equal(tt_dataset_size(d), 3);
    assert_string_equal(tt_tensor_describe(tt_dataset_inputs(d), text, sizeof text), "u8 (3, 1, 28, 28)");
    assert_string_equal(tt_tensor_describe(tt_dataset_targets(d), text, sizeof text), "i64 (3)");
    tt_dataset_free(d);
    assert_null(tt_digits(0, 9));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
}

static void an_example_depends_on_seed_and_number_alone(void **state) {
    (void)state;
    tt_dataset *few = tt_digits(20, 5), *many = tt_digits(200, 5), *others = tt_digits(20, 6);
    const void *a = tt_tensor_data(tt_dataset_inputs(few)), *b = tt_tensor_data(tt_dataset_inputs(many));
    assert_memory_equal(a, b, 20 * PIXELS);
    assert_memory_not_equal(a, tt_tensor_data(tt_dataset_inputs(others)), 20 * PIXELS);
    assert_memory_equal(tt_tensor_data(tt_dataset_targets(few)), tt_tensor_data(tt_dataset_targets(many)), 20 * 8);
    tt_dataset_free(few);
    tt_dataset_free(many);
    tt_dataset_free(others);
}

static void digits_are_balanced_and_inked(void **state) {
    (void)state;
    enum { N = 5000 };
    int of_digit[10] = {0};
    double ink = 0, border = 0;
    tt_dataset *d = tt_digits(N, 1);
    const uint8_t *p = tt_tensor_data(tt_dataset_inputs(d));
    const int64_t *digit = tt_tensor_i64(tt_dataset_targets(d));
    for (int64_t i = 0; i < N; i++, p += PIXELS) {
        int sum = 0;
        assert_in_range(digit[i], 0, 9);
        of_digit[digit[i]]++;
        for (int k = 0; k < PIXELS; k++)
            sum += p[k];
        for (int k = 0; k < 28; k++)
            border += p[k] + p[PIXELS - 1 - k] + p[k * 28] + p[k * 28 + 27];
        assert_true(sum > 3000); /* something is written */
        ink += sum;
    }
    tt_dataset_free(d);
    for (int k = 0; k < 10; k++)
        assert_in_range(of_digit[k], N / 10 - 100, N / 10 + 100);
    assert_true(ink / N / PIXELS > 20 && ink / N / PIXELS < 50); /* MNIST: 33 of 255 */
    assert_true(border / N / 112 < 6);                           /* the glyph is inside the page */
}

/* Nearest of 2,000 known examples: well above chance, and not perfect, or the set would teach nothing. */
static void digits_can_be_learned_but_not_at_once(void **state) {
    (void)state;
    if (getenv("TT_SANITIZED")) /* a minute there, of arithmetic alone */
        skip();
    enum { KNOWN = 2000, ASKED = 200 };
    tt_dataset *d = tt_digits(KNOWN + ASKED, 2);
    const uint8_t *known = tt_tensor_data(tt_dataset_inputs(d)), *p = known + KNOWN * PIXELS;
    const int64_t *label = tt_tensor_i64(tt_dataset_targets(d));
    int right = 0;
    for (int i = 0; i < ASKED; i++, p += PIXELS) {
        int64_t best_distance = INT64_MAX, best = 0;
        for (int j = 0; j < KNOWN; j++) {
            int distance = 0;
            for (int k = 0; k < PIXELS; k++)
                distance += (p[k] - known[j * PIXELS + k]) * (p[k] - known[j * PIXELS + k]);
            if (distance < best_distance) {
                best_distance = distance;
                best = label[j];
            }
        }
        right += best == label[KNOWN + i];
    }
    tt_dataset_free(d);
    assert_in_range(right, ASKED * 75 / 100, ASKED * 97 / 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_everywhere),
        cmocka_unit_test(shapes_are_those_of_images),
        cmocka_unit_test(an_example_depends_on_seed_and_number_alone),
        cmocka_unit_test(digits_are_balanced_and_inked),
        cmocka_unit_test(digits_can_be_learned_but_not_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
