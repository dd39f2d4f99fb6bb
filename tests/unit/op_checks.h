/* What a test of a family of operators does with its cases: see gradcheck.h. Include it after cmocka.h. */
#ifndef OP_CHECKS_H
#define OP_CHECKS_H

#include "gradcheck.h"
#include "vectors.h"

#include <tutti/nn.h>

#include <string.h>

static inline void op_below(double worst, double limit, const gradcheck_case *c, int mode, const char *what) {
    if (!(worst <= limit))
        fail_msg("%s, mode %d: %s by %g (%s)", c->name, mode, what, worst, tt_last_error());
}

/* Compare gradients with finite differences, f32 with f64, devices with each other, small types with f32; all
 * layouts. */
static inline void op_check_gradients(const gradcheck_case *c) {
    for (int mode = 0; mode < GRADCHECK_MODES; mode++)
        op_below(gradcheck_worst(c, (gradcheck_mode)mode), 1e-8, c, mode, "the gradient is off");
}

static inline void op_check_types(const gradcheck_case *c) {
    for (int i = 0; i < GRADCHECK_MODES; i++) {
        gradcheck_mode mode = (gradcheck_mode)i;
        op_below(gradcheck_f32_worst(c, mode), 4e-6, c, mode, "f32 differs from f64");
        op_below(gradcheck_compare(c, mode, &(gradcheck_kind){"cpu", TT_F32, TT_F32},
                                   &(gradcheck_kind){"reference", TT_F32, TT_F32}),
                 4e-6, c, mode, "f32 of the cpu differs from the reference's");
        op_below(gradcheck_compare(c, mode, &(gradcheck_kind){"cpu", TT_F16, TT_F16},
                                   &(gradcheck_kind){"reference", TT_F32, TT_F16}),
                 4e-3, c, mode, "f16 differs from f32");
        op_below(gradcheck_compare(c, mode, &(gradcheck_kind){"cpu", TT_BF16, TT_BF16},
                                   &(gradcheck_kind){"reference", TT_F32, TT_BF16}),
                 3.2e-2, c, mode, "bf16 differs from f32");
    }
}

static inline void op_compare(const char *name, const tt_tensor *got, const json_t *want) {
    assert_int_equal(tt_tensor_numel(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++) {
        double a = (double)tt_tensor_f32(got)[i], b = vectors_number(want, i);
        if (!(fabs(a - b) <= 2e-6 * (1 + fabs(b))))
            fail_msg("%s: element %zu is %.9g, in PyTorch %.9g", name, i, a, b);
    }
}

static inline const json_t *op_find(const json_t *ops, const char *name) {
    for (size_t i = 0; i < json_array_size(ops); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(ops, i), "name")), name))
            return json_array_get(ops, i);
    fail_msg("%s: PyTorch's numbers are missing", name);
    return NULL;
}

/* Compare f32 with PyTorch's numbers, in memory format `mode`. */
static inline void op_check_pytorch(const gradcheck_case *c, const json_t *ops, gradcheck_mode mode) {
    TT_AUTO_SCOPE;
    const json_t *want = op_find(ops, c->name);
    tt_tensor *leaf[GRADCHECK_INPUTS] = {NULL};
    for (int k = 0; k < c->n; k++)
        leaf[k] = gradcheck_leaf(c, k, TT_F32, mode);
    tt_tensor *y = c->f(leaf);
    if (!y)
        fail_msg("%s: %s", c->name, tt_last_error());
    op_compare(c->name, tt_contiguous(y), json_object_get(want, "result"));
    assert_int_equal(tt_backward(gradcheck_loss(c, leaf, GRADCHECK_LEAF)), TT_OK);
    TT_NO_GRAD;
    for (int k = 0; k < c->n; k++)
        op_compare(c->name, tt_contiguous(tt_grad(leaf[k])), json_array_get(json_object_get(want, "grads"), (size_t)k));
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

/* Expect an error of `who` that says `what`. */
static inline void op_fails(const void *got, tt_status status, const char *who, const char *what) {
    if (got)
        fail_msg("%s: expected an error", who);
    if (tt_last_status() != status || strncmp(tt_last_error(), who, strlen(who)) || !strstr(tt_last_error(), what))
        fail_msg("expected an error of %s with \"%s\", got %s: %s", who, what, tt_status_name(tt_last_status()),
                 tt_last_error());
    assert_int_equal(tt_backward(NULL), status); /* and clears it */
    tt_clear_error();
}

#endif
