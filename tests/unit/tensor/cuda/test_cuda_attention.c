/* Scaled dot product attention on the CUDA device, beside the cpu: as test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "unit/expect.h"

enum { MOST = 4 };

typedef struct attention_case {
    const char *name;
    int64_t batch, T, S, D, Dv;
    bool causal;
    enum { NO_MASK, SEEN, ADDED } mask;
} attention_case;

/* More keys, rows and columns than the threads of a block of the fake: 32. */
static const attention_case cases[] = {
    {"plain", 2, 5, 7, 4, 3, false, NO_MASK},
    {"causal", 1, 9, 9, 8, 8, true, NO_MASK},
    {"causal, more keys", 1, 4, 9, 3, 5, true, NO_MASK},
    {"causal, more rows", 1, 9, 4, 3, 5, true, NO_MASK},
    {"many keys", 1, 3, 70, 6, 5, false, NO_MASK},
    {"many rows", 1, 75, 6, 5, 4, true, NO_MASK},
    {"wide", 1, 4, 5, 40, 67, false, NO_MASK},
    {"added", 2, 5, 6, 4, 4, true, ADDED},
    {"one", 1, 1, 1, 1, 1, true, NO_MASK},
    {"16 bytes at a time", 2, 40, 40, 32, 32, true, NO_MASK}, /* what cuDNN takes of 16-bit floats */
    {"16 bytes, more keys", 1, 5, 66, 64, 16, false, NO_MASK},
};

static tt_tensor *waves(tt_shape shape, double step, tt_dtype dtype) {
    tt_tensor *x = tt_zeros(shape, TT_F64);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        ((double *)tt_tensor_data(x))[i] = sin(step * (double)(i + 1)) * 0.75;
    return tt_to(x, dtype);
}

/* Row 1 sees nothing. */
static tt_tensor *mask_of(const attention_case *c, tt_dtype dtype) {
    if (c->mask == NO_MASK)
        return NULL;
    tt_tensor *x = tt_zeros(S(c->T, c->S), TT_F32);
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t j = 0; j < c->S; j++) {
            bool seen = t != 1 && (t + j) % 3 != 0;
            tt_tensor_f32(x)[t * c->S + j] = c->mask == SEEN ? (float)seen : seen ? (float)(j - t) / 4 : -INFINITY;
        }
    return tt_to(x, c->mask == SEEN ? TT_BOOL : dtype);
}

/* y, and the gradients of q, k and v. */
static void attend_on(const tt_device *device, const attention_case *c, tt_tensor *const given[3], tt_tensor *mask,
                      tt_tensor *out[MOST]) {
    tt_tensor *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = tt_detach(tt_to_device(given[i], device));
        tt_requires_grad_(in[i], true);
    }
    tt_tensor *y = tt_scaled_dot_product_attention(in[0], in[1], in[2], .is_causal = c->causal,
                                                   .attn_mask = mask ? tt_to_device(mask, device) : NULL);
    tt_tensor *g = y ? tt_to_device(waves(tt_tensor_shape(y), 1.7, tt_tensor_dtype(y)), device) : NULL;
    if (!y || tt_backward(tt_sum(tt_mul(y, g))))
        fail_msg("%s: %s", c->name, tt_last_error());
    out[0] = y;
    for (int i = 0; i < 3; i++)
        out[1 + i] = tt_grad(in[i]);
}

static void compare_attention(const attention_case *c, tt_tensor *const in[3], tt_dtype dtype) {
    static const char *const what[MOST] = {"y", "dq", "dk", "dv"};
    tt_tensor *near[MOST], *far[MOST], *again[MOST], *mask = mask_of(c, dtype);
    attend_on(TT_CPU, c, in, mask, near);
    attend_on(TT_CUDA(0), c, in, mask, far);
    attend_on(other_device(), c, in, mask, again);
    for (int i = 0; i < MOST; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s, %s", c->name, what[i]);
        expect_close(name, dtype, far[i], near[i]);
        assert_true(tt_equal(here(far[i]), here(again[i])));
    }
}

static void attention_is_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            const attention_case *c = &cases[i];
            tt_tensor *in[3] = {waves(S(c->batch, c->T, c->D), 0.3, floats[f]),
                                waves(S(c->batch, c->S, c->D), 0.7, floats[f]),
                                waves(S(c->batch, c->S, c->Dv), 1.1, floats[f])};
            compare_attention(c, in, floats[f]);
        }
}

/* Bool masks are looked up by index_select. */
static void bool_masks_are_the_cpus(void **state) {
    (void)state;
    static const attention_case c = {"seen", 2, 5, 6, 4, 4, false, SEEN};
    for (int f = 0; f < FLOATS; f++) {
        TT_AUTO_SCOPE;
        tt_tensor *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = waves(S(2, i ? 6 : 5, 4), 0.3 + 0.4 * i, floats[f]);
        if (!tt_index_select(there(in[0]), 0, there(tt_arange(1)))) {
            expect_error(TT_ERR_UNSUPPORTED, "has no kernel \"index_select\"");
            skip();
        }
        compare_attention(&c, in, floats[f]);
    }
}

/* Heads side by side in a row, as layers have them: rows have gaps. */
static void heads_with_gaps_are_the_cpus(void **state) {
    (void)state;
    static const attention_case c = {"heads", 2, 6, 6, 4, 4, true, ADDED};
    for (int f = 0; f < FLOATS; f++) {
        TT_AUTO_SCOPE;
        tt_tensor *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = tt_transpose(waves(S(2, 6, 3, 4), 0.3 + 0.4 * i, floats[f]), 1, 2);
        compare_attention(&c, in, floats[f]);
        for (int i = 0; i < 3; i++)
            in[i] = tt_transpose(waves(S(2, 4, 6), 0.3 + 0.4 * i, floats[f]), 1, 2); /* columns have gaps */
        compare_attention(&c, in, floats[f]);
    }
}

static void rows_without_numbers_are_the_cpus(void **state) {
    (void)state;
    static const double values[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *q = waves(S(4, 3), 0.3, TT_F32), *k = waves(S(5, 3), 0.7, TT_F32), *v = waves(S(5, 2), 1.1, TT_F32);
        tt_tensor_f32(q)[4] = (float)values[i];
        expect_close("attention", TT_F32, tt_scaled_dot_product_attention(there(q), there(k), there(v)),
                     tt_scaled_dot_product_attention(q, k, v));
    }
}

static void empty_ones_are_the_cpus(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const attention_case no_keys = {"no keys", 2, 3, 0, 4, 5, false, NO_MASK};
    static const attention_case no_rows = {"no rows", 2, 0, 3, 4, 5, false, NO_MASK};
    tt_tensor *rows = waves(S(2, 3, 4), 0.3, TT_F32), *none = tt_zeros(S(2, 0, 4), TT_F32);
    compare_attention(&no_keys, (tt_tensor *[]){rows, none, tt_zeros(S(2, 0, 5), TT_F32)}, TT_F32);
    compare_attention(&no_rows, (tt_tensor *[]){none, rows, waves(S(2, 3, 5), 0.3, TT_F32)}, TT_F32);
}

/* Heads and batches share launches. */
static void a_batch_takes_one_launch(void **state) {
    (void)state;
    only_on_the_fake();
    static const attention_case c = {"launches", 1, 5, 6, 4, 4, true, NO_MASK};
    unsigned long launches[2];
    for (int many = 0; many < 2; many++) {
        TT_AUTO_SCOPE;
        tt_tensor *in[3], *out[MOST];
        for (int i = 0; i < 3; i++)
            in[i] = waves(many ? S(3, 4, i ? 6 : 5, 4) : S(1, 1, i ? 6 : 5, 4), 0.3, TT_F32);
        const unsigned long before = fake_count("fake_cuda_launches");
        attend_on(TT_CUDA(0), &c, in, NULL, out);
        launches[many] = fake_count("fake_cuda_launches") - before;
    }
    assert_int_equal(launches[1], launches[0]);
}

/* Of two dimensions, with one mask for all. */
static void batches_are_the_cpus(void **state) {
    (void)state;
    static const attention_case c = {"a batch", 1, 5, 6, 4, 4, true, ADDED};
    for (int f = 0; f < FLOATS; f++) {
        TT_AUTO_SCOPE;
        tt_tensor *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = waves(S(2, 3, i ? 6 : 5, 4), 0.3 + 0.4 * i, floats[f]);
        compare_attention(&c, in, floats[f]);
    }
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_the_cpus),        cmocka_unit_test(bool_masks_are_the_cpus),
        cmocka_unit_test(heads_with_gaps_are_the_cpus), cmocka_unit_test(rows_without_numbers_are_the_cpus),
        cmocka_unit_test(empty_ones_are_the_cpus),      cmocka_unit_test(batches_are_the_cpus),
        cmocka_unit_test(a_batch_takes_one_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
