/* What every family of operators is held to: gradients against finite differences, element types and devices against
 * each other, in all layouts, and PyTorch's numbers (tests/vectors). Include it in one test program's only source. */
#ifndef OP_CHECKS_H
#define OP_CHECKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gradcheck.h"
#include "unit/vectors.h"

#include <tutti/nn.h>

/* How far results may be apart, relative to 1 + |x|. f32 rounds by 6e-8: sums of some thirty products may be 2e-6 away
 * from f64's. A family that needs more says so; 0: as here. */
typedef struct op_limits {
    double f32;       /* from f64 */
    double reference; /* f32 of the plain loops, from f32 of the cpu */
    double f16, bf16; /* from f32 of the values that they hold */
    double torch;     /* f32 from PyTorch's numbers */
} op_limits;

static const op_limits op_usual = {2e-6, 1e-6, 2e-3, 1.6e-2, 5e-7};

typedef struct op_family {
    const gradcheck_case *cases;
    int count;
    const char *vectors; /* "torch-index.json": under "ops" a case of each name, and no other */
    op_limits more;
} op_family;

#define OP_COUNT(cases) ((int)(sizeof(cases) / sizeof *(cases)))

static inline double op_limit(double more, double usual) { return more > 0 ? more : usual; }

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

/* The plain loops are the oracle of the fast ones. */
static inline void op_check_case(const gradcheck_case *c, gradcheck_mode mode, const op_limits *more) {
    op_below(gradcheck_worst(c, mode), 1e-8, c, mode, "the gradient is off");
    op_compare(c, mode, "cpu", TT_F32, "cpu", TT_F64, TT_F32, op_limit(more->f32, op_usual.f32));
    op_compare(c, mode, "cpu", TT_F32, "reference", TT_F32, TT_F32, op_limit(more->reference, op_usual.reference));
    op_compare(c, mode, "cpu", TT_F64, "reference", TT_F64, TT_F32, 1e-15);
}

static inline void op_check_small_case(const gradcheck_case *c, gradcheck_mode mode, const op_limits *more) {
    static const char *const devices[] = {"cpu", "reference"};
    for (int i = 0; i < 2; i++) {
        op_compare(c, mode, devices[i], TT_F16, "reference", TT_F32, TT_F16, op_limit(more->f16, op_usual.f16));
        op_compare(c, mode, devices[i], TT_BF16, "reference", TT_F32, TT_BF16, op_limit(more->bf16, op_usual.bf16));
    }
}

static inline void op_check(const op_family *family) {
    for (int i = 0; i < family->count; i++)
        for (int mode = 0; mode < GRADCHECK_MODES; mode++)
            op_check_case(&family->cases[i], (gradcheck_mode)mode, &family->more);
}

static inline void op_check_small_types(const op_family *family) {
    for (int i = 0; i < family->count; i++)
        for (int mode = 0; mode < GRADCHECK_MODES; mode++)
            op_check_small_case(&family->cases[i], (gradcheck_mode)mode, &family->more);
}

/* ---- PyTorch's numbers */

static inline const json_t *op_find(const json_t *ops, const char *name) {
    for (size_t i = 0; i < json_array_size(ops); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(ops, i), "name")), name))
            return json_array_get(ops, i);
    fail_msg("%s: PyTorch's numbers are missing", name);
    return NULL;
}

static inline void op_numbers(const char *name, tt_tensor *x, const json_t *want, double limit) {
    const double *got = gradcheck_numbers(x);
    if (!got || tt_tensor_numel(x) != (int64_t)json_array_size(want))
        fail_msg("%s: expected %zu elements (%s)", name, json_array_size(want), tt_last_error());
    for (size_t i = 0; i < json_array_size(want); i++)
        if (!(fabs(got[i] - vectors_number(want, i)) <= limit * (1 + fabs(vectors_number(want, i)))))
            fail_msg("%s: element %zu is %.9g, in PyTorch %.9g", name, i, got[i], vectors_number(want, i));
}

static inline void op_check_torch_case(const gradcheck_case *c, gradcheck_mode mode, const json_t *want, double limit) {
    TT_AUTO_SCOPE;
    tt_tensor *leaf[GRADCHECK_INPUTS] = {NULL};
    for (int k = 0; k < c->n; k++)
        leaf[k] = gradcheck_leaf(c, k, TT_F32, mode);
    op_numbers(c->name, c->f(leaf), json_object_get(want, "result"), limit);
    assert_int_equal(tt_backward(gradcheck_loss(c, leaf, GRADCHECK_LEAF)), TT_OK);
    for (int k = 0; k < c->n; k++)
        op_numbers(c->name, tt_grad(leaf[k]), json_array_get(json_object_get(want, "grads"), (size_t)k), limit);
}

/* Compare all cases, f32, images also with their channels last, with the file's numbers; it has no others. */
static inline void op_check_torch(const op_family *family) {
    json_t *vectors = vectors_load(family->vectors);
    assert_non_null(vectors);
    const json_t *ops = json_object_get(vectors, "ops");
    const double limit = op_limit(family->more.torch, op_usual.torch);
    assert_int_equal(json_array_size(ops), family->count);
    for (int i = 0; i < family->count; i++) {
        const json_t *want = op_find(ops, family->cases[i].name);
        op_check_torch_case(&family->cases[i], GRADCHECK_LEAF, want, limit);
        op_check_torch_case(&family->cases[i], GRADCHECK_CHANNELS_LAST, want, limit);
    }
    json_decref(vectors);
}

/* Compare a state_dict with PyTorch's: names, order, and numbers to within `limit`, relative to 1 + theirs. */
static inline void op_check_state(const tt_named_tensors *state, const json_t *want, double limit) {
    if (!state)
        fail_msg("%s", tt_last_error());
    assert_int_equal(state->count, json_array_size(want));
    for (int64_t i = 0; i < state->count; i++) {
        const json_t *entry = json_array_get(want, (size_t)i), *numbers = json_array_get(entry, 1);
        const double *got = gradcheck_numbers(state->tensors[i]);
        assert_string_equal(state->names[i], json_string_value(json_array_get(entry, 0)));
        assert_int_equal(tt_tensor_numel(state->tensors[i]), json_array_size(numbers));
        for (size_t k = 0; k < json_array_size(numbers); k++) {
            double b = (double)(float)vectors_number(numbers, k);
            if (!(fabs(got[k] - b) <= limit * (1 + fabs(b))))
                fail_msg("%s: element %zu is %.9g, in PyTorch %.9g", state->names[i], k, got[k], b);
        }
    }
}

/* ---- the tests of a family, which is their state: OP_FAMILY_TESTS(&family) */

static inline void gradients_devices_and_layouts(void **family) { op_check(*family); }
static inline void f16_and_bf16_match_f32(void **family) { op_check_small_types(*family); }
static inline void f32_matches_pytorch(void **family) { op_check_torch(*family); }

#define OP_FAMILY_TESTS(family)                                                            \
    cmocka_unit_test_prestate(gradients_devices_and_layouts, (void *)(uintptr_t)(family)), \
        cmocka_unit_test_prestate(f16_and_bf16_match_f32, (void *)(uintptr_t)(family)),    \
        cmocka_unit_test_prestate(f32_matches_pytorch, (void *)(uintptr_t)(family))

/* ---- errors: name of the operator, and what came */

static inline void op_expect(const void *got, tt_status status, const char *who, const char *what) {
    if (got)
        fail_msg("%s: expected an error", who);
    if (tt_last_status() != status || strncmp(tt_last_error(), who, strlen(who)) || !strstr(tt_last_error(), what))
        fail_msg("expected %s of %s with \"%s\", got %s: %s", tt_status_name(status), who, what,
                 tt_status_name(tt_last_status()), tt_last_error());
    assert_int_equal(tt_backward(NULL), status); /* and clears it */
    tt_clear_error();
}

#endif
