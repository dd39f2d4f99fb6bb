/* What every operator is held to: gradients against finite differences, devices and element types against each other,
 * in all layouts, and PyTorch's numbers. */
#ifndef OP_CHECKS_POINTWISE_H
#define OP_CHECKS_POINTWISE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gradcheck.h"
#include "vectors.h"

static inline void op_below(double worst, double limit, const gradcheck_case *c, gradcheck_mode mode,
                            const char *what) {
    if (!(worst <= limit))
        fail_msg("%s, mode %d: %s by %g (%s)", c->name, (int)mode, what, worst, tt_last_error());
}

/* One device and type against another; inputs are rounded to `rounded` on both. */
static inline void op_compare(const gradcheck_case *c, gradcheck_mode mode, const char *device, tt_dtype dtype,
                              const char *other, tt_dtype other_dtype, tt_dtype rounded, double limit) {
    char what[96];
    snprintf(what, sizeof what, "%s on %s differs from %s on %s", tt_dtype_name(dtype), device,
             tt_dtype_name(other_dtype), other);
    op_below(gradcheck_compare(c, mode, &(gradcheck_kind){device, dtype, rounded},
                               &(gradcheck_kind){other, other_dtype, rounded}),
             limit, c, mode, what);
}

static inline void op_check(const gradcheck_case *c, gradcheck_mode mode) {
    op_below(gradcheck_worst(c, mode), 1e-8, c, mode, "the gradient is off");
    op_compare(c, mode, "cpu", TT_F32, "cpu", TT_F64, TT_F32, 2e-6);
    op_compare(c, mode, "cpu", TT_F32, "reference", TT_F32, TT_F32, 1e-6);
    op_compare(c, mode, "cpu", TT_F64, "reference", TT_F64, TT_F32, 1e-15);
}

static inline void op_check_small_types(const gradcheck_case *c, gradcheck_mode mode, double f16, double bf16) {
    op_compare(c, mode, "cpu", TT_F16, "reference", TT_F32, TT_F16, f16);
    op_compare(c, mode, "cpu", TT_BF16, "reference", TT_F32, TT_BF16, bf16);
}

/* In every mode. */
static inline void op_check_all(const gradcheck_case *cases, size_t n,
                                void (*check)(const gradcheck_case *c, gradcheck_mode mode)) {
    for (size_t i = 0; i < n; i++)
        for (int mode = 0; mode < GRADCHECK_MODES; mode++)
            check(&cases[i], (gradcheck_mode)mode);
}

/* ---- PyTorch's numbers */

static inline const json_t *op_vector(const json_t *ops, const char *name) {
    for (size_t i = 0; i < json_array_size(ops); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(ops, i), "name")), name))
            return json_array_get(ops, i);
    return NULL;
}

static inline void op_numbers(const char *name, tt_tensor *x, const json_t *want) {
    const double *got = gradcheck_numbers(x);
    if (!got || tt_tensor_numel(x) != (int64_t)json_array_size(want))
        fail_msg("%s: expected %zu elements (%s)", name, json_array_size(want), tt_last_error());
    for (size_t i = 0; i < json_array_size(want); i++)
        if (!(fabs(got[i] - vectors_number(want, i)) <= 6e-7 * (1 + fabs(vectors_number(want, i)))))
            fail_msg("%s: element %zu is %.9g, in PyTorch %.9g", name, i, got[i], vectors_number(want, i));
}

/* Compare all cases, f32, with the file's numbers; it has no others. */
static inline void op_check_torch(const gradcheck_case *cases, size_t n, const char *file) {
    json_t *vectors = vectors_load(file);
    assert_non_null(vectors);
    const json_t *ops = json_object_get(vectors, "ops");
    assert_int_equal(json_array_size(ops), n);
    for (size_t i = 0; i < n; i++) {
        TT_AUTO_SCOPE;
        const json_t *want = op_vector(ops, cases[i].name);
        if (!want)
            fail_msg("%s has no %s", file, cases[i].name);
        tt_tensor *leaf[GRADCHECK_INPUTS];
        for (int k = 0; k < cases[i].n; k++)
            leaf[k] = gradcheck_leaf(&cases[i], k, TT_F32, GRADCHECK_LEAF);
        op_numbers(cases[i].name, cases[i].f(leaf), json_object_get(want, "result"));
        assert_int_equal(tt_backward(gradcheck_loss(&cases[i], leaf, GRADCHECK_LEAF)), TT_OK);
        for (int k = 0; k < cases[i].n; k++)
            op_numbers(cases[i].name, tt_grad(leaf[k]), json_array_get(json_object_get(want, "grads"), (size_t)k));
    }
    json_decref(vectors);
}

/* ---- errors: name of the operator, and what came */

static inline void op_expect(const void *got, tt_status status, const char *who, const char *what) {
    if (got)
        fail_msg("%s: expected an error", who);
    assert_int_equal(tt_last_status(), status);
    if (strncmp(tt_last_error(), who, strlen(who)) || !strstr(tt_last_error(), what))
        fail_msg("expected an error of %s with \"%s\", got: %s", who, what, tt_last_error());
    assert_int_equal(tt_backward(NULL), status); /* and clears it */
    tt_clear_error();
}

#define OP_COUNT(cases) (sizeof(cases) / sizeof *(cases))

#endif
