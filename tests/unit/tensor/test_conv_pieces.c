/* Convolutions of more images than one piece has, and of so many channels that Winograd's kernels are taken where the
 * processor has them: f32 beside f64, which has neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <tutti/nn.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

enum { RESULTS = 4 };

/* y, and the gradients of x, weight and bias from a gradient of y that differs from place to place. */
typedef struct results {
    tt_tensor *of[RESULTS];
} results;

static results convolve(tt_tensor *x, tt_tensor *w, tt_tensor *b, tt_tensor *g, tt_dtype dtype,
                        tt_memory_format format) {
    tt_tensor *in[] = {tt_to_memory_format(tt_to(x, dtype), format), tt_to(w, dtype), tt_to(b, dtype)};
    for (int i = 0; i < 3; i++)
        in[i] = tt_requires_grad_(tt_detach(in[i]), true);
    tt_tensor *y = tt_conv2d(in[0], in[1], .bias = in[2], .padding = 1);
    assert_int_equal(tt_backward(tt_sum(tt_mul(y, tt_to(g, dtype)))), TT_OK);
    return (results){{y, tt_grad(in[0]), tt_grad(in[1]), tt_grad(in[2])}};
}

static double largest(tt_tensor *x) {
    TT_NO_GRAD;
    double value = -1;
    assert_int_equal(tt_item(tt_max(tt_abs(x)), &value), TT_OK);
    return value;
}

static void check_shape(int64_t N, int64_t C, int64_t K, int64_t H) {
    static const char *const names[RESULTS] = {"y", "dx", "dw", "db"};
    for (int format = 0; format < 2; format++) {
        TT_AUTO_SCOPE;
        tt_manual_seed(7);
        tt_tensor *x = tt_randn(S(N, C, H, H), NULL), *w = tt_randn(S(K, C, 3, 3), NULL), *b = tt_randn(S(K), NULL);
        tt_tensor *g = tt_randn(S(N, K, H, H), NULL);
        results f32 = convolve(x, w, b, g, TT_F32, (tt_memory_format)format);
        results f64 = convolve(x, w, b, g, TT_F64, TT_CONTIGUOUS);
        for (int i = 0; i < RESULTS; i++) {
            double most = largest(f64.of[i]), far = largest(tt_sub(tt_to(f32.of[i], TT_F64), f64.of[i]));
            if (!(far <= 1e-5 * most))
                fail_msg("x (%lld, %lld, %lld), format %d: %s is off by %g of %g", (long long)N, (long long)C,
                         (long long)H, format, names[i], far, most);
        }
    }
}

static void pieces_give_what_the_whole_would(void **state) {
    (void)state;
    check_shape(13, 16, 24, 34);    /* 180 KiB an image: pieces of some images, and a shorter last one */
    if (!getenv("TT_SANITIZED"))    /* which sees no other code in it */
        check_shape(3, 16, 16, 96); /* more than a piece's bytes: each image is one */
    check_shape(9, 3, 16, 60);      /* few channels: no Winograd */
    check_shape(40, 1, 16, 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_give_what_the_whole_would)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
