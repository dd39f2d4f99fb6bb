/* Memory, for operators on shapes, places and order: each allocation of a forward and backward pass fails once; results
 * without a scope leave nothing behind. */
#include "unit/alloc_fail.h"

#include "op_cases_index.h"

/* gradcheck_apply() transposes it. */
static tt_tensor *strided_leaf(tt_shape shape) {
    int64_t d = shape.dim[0];
    if (shape.ndim >= 2) {
        shape.dim[0] = shape.dim[1];
        shape.dim[1] = d;
    }
    return tt_requires_grad_(tt_ones(shape, TT_BF16), true);
}

/* One forward and backward pass of a case. */
static tt_status pass_of(void *arg) {
    TT_AUTO_SCOPE;
    const gradcheck_case *c = arg;
    tt_tensor *leaf[GRADCHECK_INPUTS];
    for (int k = 0; k < c->n; k++)
        if (!(leaf[k] = strided_leaf(c->shape[k])))
            return tt_last_status();
    tt_tensor *y = gradcheck_apply(c, leaf, GRADCHECK_STRIDED);
    return y ? tt_backward(tt_sum(y)) : tt_last_status();
}

/* What isn't recorded. */
static tt_status makers(void *arg) {
    (void)arg;
    TT_AUTO_SCOPE;
    char text[64];
    tt_tensor *x = tt_transpose(tt_linspace(0, 1, 6, TT_F32), 0, 0);
    tt_tensor *made[] = {x,
                         tt_arange_from(0, 3, 1, TT_I32),
                         tt_eye(2, 3, TT_F64),
                         tt_full_like(x, 2),
                         tt_one_hot(tt_arange(3), 3),
                         tt_argsort(x, 0)};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (!made[i])
            return tt_last_status();
    tt_tensor *gaps = tt_slice(x, 0, 0, 6, 2);
    return gaps && tt_tensor_text(gaps, text, sizeof text) ? TT_OK : tt_last_status();
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    for (int i = 0; i < index_family.count; i++) {
        gradcheck_case c = index_family.cases[i];
        assert_in_range(alloc_fail_each(pass_of, &c, ALLOC_ENDS), 5, 1000);
    }
    assert_in_range(alloc_fail_each(makers, NULL, ALLOC_ENDS), 5, 1000);
}

/* Once memory is in the pool, passes take it from there. */
static void a_steady_pass_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int i = 0; i < index_family.count; i++) {
        gradcheck_case c = index_family.cases[i];
        for (int warm = 0; warm < 3; warm++)
            assert_int_equal(pass_of(&c), TT_OK);
        long before = alloc_count_own;
        assert_int_equal(pass_of(&c), TT_OK);
        if (alloc_count_own != before)
            fail_msg("%s: %ld calls of the allocator in a steady pass", c.name, alloc_count_own - before);
    }
}

/* ---- without a scope: x (2, 2) with gaps */

static tt_tensor *places_of(int64_t a, int64_t b) {
    return tt_from_data(((int64_t[]){a, b, b, a}), TT_SHAPE(2, 2), TT_I64);
}

static tt_tensor *permute(tt_tensor *x) { return tt_permute(x, TT_SHAPE(1, 0)); }
static tt_tensor *expand(tt_tensor *x) { return tt_expand(x, TT_SHAPE(3, 2, 2)); }
static tt_tensor *slice(tt_tensor *x) { return tt_slice(x, 0, 0, 2, 2); }
static tt_tensor *select_one(tt_tensor *x) { return tt_select(x, 0, 1); }
static tt_tensor *unsqueeze(tt_tensor *x) { return tt_unsqueeze(x, 0); }
static tt_tensor *cat(tt_tensor *x) { return tt_cat((tt_tensor *[]){x, x}, 2, 0); }
static tt_tensor *stack(tt_tensor *x) { return tt_stack((tt_tensor *[]){x, x}, 2, 0); }
static tt_tensor *triu(tt_tensor *x) { return tt_triu(x, 0); }
static tt_tensor *cumsum(tt_tensor *x) { return tt_cumsum(x, 0); }
static tt_tensor *argsort_0(tt_tensor *x) { return tt_argsort(x, 0); }
static tt_tensor *matmul(tt_tensor *x) { return tt_matmul(x, x); }
static tt_tensor *zeros_like(tt_tensor *x) { return tt_zeros_like(x); }
static tt_tensor *wrong_cat(tt_tensor *x) { return tt_cat(&x, 1, 2); }

static tt_tensor *sort_0(tt_tensor *x) {
    tt_tensor *values = NULL, *indices = NULL;
    tt_ignore(tt_sort(&values, &indices, x, 0));
    tt_tensor_free(indices);
    return values;
}

static tt_tensor *unbind_0(tt_tensor *x) {
    tt_tensor *out[2] = {NULL};
    tt_ignore(tt_unbind(out, 2, x, 0));
    tt_tensor_free(out[1]);
    return out[0];
}

/* An operator on x and places in it. */
static tt_tensor *with_places(tt_tensor *x, int which) {
    tt_tensor *index = places_of(0, 1), *row = tt_arange(2), *y = NULL;
    switch (which) {
    case 0:
        y = tt_index_select(x, 1, row);
        break;
    case 1:
        y = tt_gather_dim(x, 1, index);
        break;
    case 2:
        y = tt_scatter_dim(x, 1, index, x);
        break;
    case 3:
        y = tt_scatter_add(x, 1, index, x);
        break;
    case 4:
        y = tt_scatter_value(x, 1, index, 2);
        break;
    case 5:
        y = tt_embedding(x, index);
        break;
    default:
        y = tt_one_hot(index, 2);
    }
    tt_tensor_free(row);
    tt_tensor_free(index);
    return y;
}
static tt_tensor *index_select(tt_tensor *x) { return with_places(x, 0); }
static tt_tensor *gather(tt_tensor *x) { return with_places(x, 1); }
static tt_tensor *scatter(tt_tensor *x) { return with_places(x, 2); }
static tt_tensor *scatter_add(tt_tensor *x) { return with_places(x, 3); }
static tt_tensor *scatter_value(tt_tensor *x) { return with_places(x, 4); }
static tt_tensor *embedding(tt_tensor *x) { return with_places(x, 5); }
static tt_tensor *one_hot(tt_tensor *x) { return with_places(x, 6); }

static tt_tensor *attention(tt_tensor *x) {
    tt_tensor *index = places_of(0, 1), *mask = tt_to(index, TT_BOOL);
    tt_tensor *y = tt_scaled_dot_product_attention(x, x, x, .attn_mask = mask);
    tt_tensor_free(mask);
    tt_tensor_free(index);
    return y;
}

static tt_tensor *interpolate(tt_tensor *x) {
    tt_tensor *image = tt_reshape(x, TT_SHAPE(1, 1, 2, 2));
    tt_tensor *y = tt_interpolate(image, TT_SHAPE(3, 3), .mode = TT_BILINEAR);
    tt_tensor_free(image);
    return y;
}

static void use_without_a_scope(tt_tensor *(*f)(tt_tensor *)) {
    tt_tensor *leaf = tt_requires_grad_(tt_ones(TT_SHAPE(3, 3), TT_BF16), true);
    tt_tensor *part = tt_narrow(leaf, 1, 0, 2), *x = tt_narrow(part, 0, 0, 2);
    tt_tensor *y = f(x), *loss = y && tt_requires_grad(y) ? tt_sum(y) : NULL;
    if (loss)
        assert_int_equal(tt_backward(loss), TT_OK);
    tt_tensor_free(loss);
    tt_tensor_free(y);
    tt_tensor_free(x);
    tt_tensor_free(part);
    tt_tensor_free(leaf);
}

static void the_caller_owns_results_only(void **state) {
    (void)state;
    static tt_tensor *(*const ops[])(tt_tensor *) = {
        permute,      expand, slice,   select_one,  unsqueeze,     tt_squeeze_all, unbind_0,   cat,  stack,
        index_select, gather, scatter, scatter_add, scatter_value, embedding,      one_hot,    triu, cumsum,
        argsort_0,    sort_0, matmul,  zeros_like,  wrong_cat,     attention,      interpolate};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        use_without_a_scope(ops[i]); /* what is made once stays */
        long before = alloc_in_use();
        use_without_a_scope(ops[i]);
        if (alloc_in_use() != before)
            fail_msg("operator number %zu leaves %ld blocks", i, alloc_in_use() - before);
    }
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_steady_pass_allocates_nothing),
        cmocka_unit_test(the_caller_owns_results_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
