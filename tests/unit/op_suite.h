/* What holds for each family of operators: gradients against finite differences, element types and devices against each
 * other, results and gradients against PyTorch's (tests/vectors). Include it in one test program's only source. */
#ifndef OP_SUITE_H
#define OP_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gradcheck.h"
#include "vectors.h"

typedef struct op_family {
    const gradcheck_case *cases;
    int count;
    const char *vectors; /* "torch-index.json": under "ops" a case of each name, and no other */
} op_family;

static inline void op_below(double worst, double limit, const gradcheck_case *c, int mode, const char *what) {
    if (!(worst <= limit))
        fail_msg("%s, mode %d: %s by %g (%s)", c->name, mode, what, worst, tt_last_error());
}

static inline void op_check_gradients(const gradcheck_case *c, gradcheck_mode mode) {
    op_below(gradcheck_worst(c, mode), 1e-8, c, (int)mode, "the gradient is off");
    op_below(gradcheck_f32_worst(c, mode), 2e-6, c, (int)mode, "f32 differs from f64");
}

/* The plain loops are the oracle of the fast ones; small types are held to f32 of values that they hold. */
static inline void op_check_kinds(const gradcheck_case *c, gradcheck_mode mode) {
    static const struct {
        gradcheck_kind one, other;
        double limit;
        const char *what;
    } pairs[] = {
        {{"cpu", TT_F32, TT_F32}, {"reference", TT_F32, TT_F32}, 1e-6, "f32 of the cpu differs from the reference's"},
        {{"cpu", TT_F64, TT_F32}, {"reference", TT_F64, TT_F32}, 1e-15, "f64 of the cpu differs from the reference's"},
        {{"cpu", TT_F16, TT_F16}, {"reference", TT_F32, TT_F16}, 2e-3, "f16 differs from f32"},
        {{"cpu", TT_BF16, TT_BF16}, {"reference", TT_F32, TT_BF16}, 1.6e-2, "bf16 differs from f32"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        op_below(gradcheck_compare(c, mode, &pairs[i].one, &pairs[i].other), pairs[i].limit, c, (int)mode,
                 pairs[i].what);
}

static inline void op_each_mode(const op_family *family, void (*check)(const gradcheck_case *c, gradcheck_mode mode)) {
    for (int i = 0; i < family->count; i++)
        for (int mode = 0; mode < GRADCHECK_MODES; mode++)
            check(&family->cases[i], (gradcheck_mode)mode);
}

static inline void op_compare(const char *name, const tt_tensor *got, const json_t *want) {
    if (!got || tt_tensor_numel(got) != (int64_t)json_array_size(want))
        fail_msg("%s: expected %zu elements (%s)", name, json_array_size(want), tt_last_error());
    for (size_t i = 0; i < json_array_size(want); i++) {
        double a = (double)tt_tensor_f32(got)[i], b = vectors_number(want, i);
        if (!(fabs(a - b) <= 5e-7 * (1 + fabs(b))))
            fail_msg("%s: element %zu is %.9g, in PyTorch %.9g", name, i, a, b);
    }
}

static inline void op_compare_case(const gradcheck_case *c, const json_t *want) {
    TT_AUTO_SCOPE;
    tt_tensor *leaf[GRADCHECK_INPUTS];
    for (int k = 0; k < c->n; k++)
        leaf[k] = gradcheck_leaf(c, k, TT_F32, GRADCHECK_LEAF);
    op_compare(c->name, tt_contiguous(c->f(leaf)), json_object_get(want, "result"));
    assert_int_equal(tt_backward(gradcheck_loss(c, leaf, GRADCHECK_LEAF)), TT_OK);
    for (int k = 0; k < c->n; k++)
        op_compare(c->name, tt_grad(leaf[k]), json_array_get(json_object_get(want, "grads"), (size_t)k));
}

static inline void op_check_pytorch(const op_family *family) {
    json_t *vectors = vectors_load(family->vectors);
    const json_t *ops = json_object_get(vectors, "ops");
    assert_int_equal(json_array_size(ops), family->count);
    for (int i = 0; i < family->count; i++) { /* in one order */
        const json_t *want = json_array_get(ops, (size_t)i);
        assert_string_equal(json_string_value(json_object_get(want, "name")), family->cases[i].name);
        op_compare_case(&family->cases[i], want);
    }
    json_decref(vectors);
}

/* An error of `who` whose text has `what`; the scope forgets it. */
static inline void op_expect(const void *got, tt_status status, const char *who, const char *what) {
    if (got)
        fail_msg("%s: expected an error", who);
    if (tt_last_status() != status || strncmp(tt_last_error(), who, strlen(who)) || !strstr(tt_last_error(), what))
        fail_msg("expected %s of %s with \"%s\", got: %s", tt_status_name(status), who, what, tt_last_error());
    tt_ignore(tt_backward(NULL));
    tt_clear_error();
}

#endif
