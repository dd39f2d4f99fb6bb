/* The tape, leaves, hooks, and what backward refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "autograd/backward.h"
#include "autograd/leaf.h"
#include "tensor/core/tensor.h"

#include <tutti/functional.h>

static tt_tensor *leaf(float value) { return tt_requires_grad_(tt_full(TT_SHAPE(2), TT_F32, (double)value), true); }

static float grad0(const tt_tensor *x) { return tt_tensor_f32(tt_grad(x))[0]; }

static void gradients_add_up_until_zeroed(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3);
    assert_null(tt_grad(x));
    assert_int_equal(tt_backward(tt_sum(tt_mul(x, x))), TT_OK);
    assert_true(grad0(x) == 6);
    tt_tensor *grad = tt_grad(x);
    void *memory = tt_tensor_data(grad);
    assert_int_equal(tt_backward(tt_sum(tt_scale(x, 10))), TT_OK);
    assert_true(grad0(x) == 16);
    tt_zero_grad(x);
    assert_null(tt_grad(x));
    assert_int_equal(tt_backward(tt_sum(tt_scale(x, 10))), TT_OK);
    assert_true(grad0(x) == 10);
    assert_ptr_equal(tt_grad(x), grad);
    assert_ptr_equal(tt_tensor_data(grad), memory);
    tt_tensor_free(grad);
    assert_int_equal(tt_last_status(), TT_ERR_STATE); /* it is the leaf's */
    tt_clear_error();
}

static void a_diamond_is_walked_once(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(2), *h = tt_mul(x, x);         /* 4 */
    tt_tensor *y = tt_add(tt_mul(h, h), tt_mul(x, h)); /* x^4 + x^3 */
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(grad0(x) == 4 * 8 + 3 * 4);
}

static void records_live_without_a_scope(void **state) {
    (void)state;
    tt_tensor *x = leaf(3), *h = tt_mul(x, x), *dropped = tt_scale(h, 2), *loss = tt_sum(h);
    tt_tensor_free(dropped);
    tt_tensor_free(h); /* the tape still needs it, and has it */
    assert_int_equal(tt_backward(loss), TT_OK);
    assert_true(grad0(x) == 6);
    tt_tensor_free(loss);
    h = tt_scale(x, 2);
    loss = tt_sum(h);
    tt_tensor_free(h);
    tt_tensor_free(x); /* the leaf too */
    assert_int_equal(tt_backward(loss), TT_OK);
    tt_tensor_free(loss);
}

static void gradients_are_converted_with_the_values(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3), *y = tt_to(x, TT_F64);
    assert_int_equal(tt_backward(tt_sum(tt_mul(y, y))), TT_OK);
    assert_int_equal(tt_tensor_dtype(tt_grad(x)), TT_F32);
    assert_true(grad0(x) == 6);
}

static void a_leaf_is_a_loss_too(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_full(TT_SCALAR, TT_F64, 3), true);
    assert_int_equal(tt_backward(x), TT_OK);
    assert_int_equal(tt_backward(x), TT_OK);
    double g = 0;
    assert_int_equal(tt_item(tt_grad(x), &g), TT_OK);
    assert_true(g == 2);
}

static void backward_refuses(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(1), *plain = tt_ones(TT_SHAPE(2), TT_F32);
    assert_int_equal(tt_backward(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_backward(tt_scale(x, 2)), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "f32 (2)"));
    assert_int_equal(tt_backward(tt_sum(plain)), TT_ERR_STATE);
    assert_int_equal(tt_backward(tt_sum(tt_detach(tt_scale(x, 2)))), TT_ERR_STATE);
    tt_tensor *h = tt_scale(x, 2), *loss = tt_sum(h), *other = tt_sum(tt_mul(h, h));
    assert_int_equal(tt_backward(loss), TT_OK);
    assert_int_equal(tt_backward(loss), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "spent"));
    float before = grad0(x);
    assert_int_equal(tt_backward(other), TT_ERR_STATE); /* shares h's record */
    assert_true(grad0(x) == before);
    assert_null(tt_requires_grad_(h, true));
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_null(tt_requires_grad_(tt_scale(x, 2), false));
    tt_clear_error();
}

static void a_scope_forgets_its_records(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(1), *kept = NULL;
    {
        TT_AUTO_SCOPE;
        kept = tt_keep(tt_sum(tt_scale(x, 2)));
    }
    assert_int_equal(tt_backward(kept), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "its scope ended"));
    tt_tensor_free(kept);
    tt_tensor *h = tt_scale(x, 3); /* recorded in the outer scope: an inner one leaves it alone */
    {
        TT_AUTO_SCOPE;
        tt_sum(h);
    }
    assert_int_equal(tt_backward(tt_sum(h)), TT_OK);
    assert_true(grad0(x) == 3);
    tt_clear_error();
}

static void nothing_is_recorded_under_no_grad(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(1);
    {
        TT_NO_GRAD;
        bool before = tt_no_grad_begin();
        assert_true(before);
        tt_no_grad_end(before);
        assert_false(tt_requires_grad(tt_scale(x, 2)));
    }
    assert_true(tt_requires_grad(tt_scale(x, 2)));
    assert_true(tt_requires_grad(x));
    assert_false(tt_requires_grad(tt_detach(x)));
    assert_ptr_equal(tt_tensor_data(tt_detach(x)), tt_tensor_data(x));
    assert_ptr_equal(tt_requires_grad_(x, false), x);
    assert_false(tt_requires_grad(x));
    assert_false(tt_requires_grad(tt_to(leaf(1), TT_I64)));
}

static void what_wants_a_gradient_is_settled_when_a_call_is_recorded(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *late = tt_ones(TT_SHAPE(2), TT_F32), *gone = leaf(1), *x = leaf(1);
    tt_tensor *y = tt_mul(tt_mul(late, gone), x);
    tt_requires_grad_(late, true);
    tt_requires_grad_(gone, false);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_null(tt_grad(late));
    assert_null(tt_grad(gone));
    assert_true(grad0(x) == 1);
}

/* ---- threads ---- */

/* Each thread has its own tape over shared tensors, and its own leaf. */
static void *train_alone(void *arg) {
    tt_tensor *shared = arg;
    for (int i = 0; i < 200; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = leaf(2);
        if (tt_backward(tt_sum(tt_mul(tt_add(x, shared), tt_view(shared, TT_SHAPE(2))))) || grad0(x) != 3)
            return "wrong";
    }
    return NULL;
}

static void threads_share_what_they_only_read(void **state) {
    (void)state;
    tt_tensor *plain = tt_full(TT_SHAPE(2), TT_F32, 3);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, train_alone, plain), 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_null(result);
    }
    tt_tensor_free(plain);
}

/* ---- hooks ---- */

typedef struct trace {
    int n;
    const tt_tensor *seen[8];
    float grad[8];
    tt_status result;
    int ended;
    tt_status pass;
} trace;

static tt_status at_end(void *user, tt_status pass) {
    trace *t = user;
    t->ended++;
    t->pass = pass;
    return TT_OK;
}

static tt_status note(tt_tensor *x, void *user) {
    trace *t = user;
    t->seen[t->n] = x;
    t->grad[t->n++] = grad0(x);
    tt_status status = tt__backward_on_end(at_end, t);
    return status ? status : t->result;
}

static void hooks_run_when_a_gradient_is_final(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    trace t = {0};
    tt_tensor *first = leaf(2), *second = leaf(3), *unused = leaf(4);
    tt_tensor *all[] = {first, second, unused};
    for (int i = 0; i < 3; i++)
        assert_int_equal(tt_register_post_accumulate_grad_hook(all[i], note, &t), TT_OK);
    /* `first` is used by the oldest record and by the newest: its gradient is final only after `second`'s. */
    tt_tensor *y = tt_mul(tt_mul(tt_scale(first, 1), second), first);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_int_equal(t.n, 2);
    assert_ptr_equal(t.seen[0], second);
    assert_ptr_equal(t.seen[1], first);
    assert_true(t.grad[0] == 4 && t.grad[1] == 12);
    assert_int_equal(t.ended, 1);
    assert_int_equal(t.pass, TT_OK);
    assert_int_equal(tt_register_post_accumulate_grad_hook(first, note, NULL),
                     TT_OK); /* never called: removed before */
    tt__leaf_remove_hook(first, note, NULL);
    tt__leaf_remove_hook(first, note, &t);
    tt__leaf_remove_hook(first, note, &t);
    assert_int_equal(tt_backward(tt_sum(first)), TT_OK);
    assert_int_equal(t.n, 2);
    assert_int_equal(tt_register_post_accumulate_grad_hook(tt_scale(first, 1), note, &t), TT_ERR_STATE);
    assert_int_equal(tt__backward_on_end(at_end, &t), TT_ERR_STATE); /* no pass is under way */
    tt_clear_error();
}

static void count_release(void *user) { ++*(int *)user; }

static void what_a_hook_owns_is_released_once(void **state) {
    (void)state;
    int freed = 0, no_leaf = 0, refused = 0;
    tt_tensor *x = leaf(1), *y = leaf(2);
    assert_int_equal(tt_register_post_accumulate_grad_hook(x, note, &freed, .destroy = count_release), TT_OK);
    assert_int_equal(tt_register_post_accumulate_grad_hook(y, note, &no_leaf, .destroy = count_release), TT_OK);
    assert_int_equal(tt_register_post_accumulate_grad_hook(y, NULL, &refused, .destroy = count_release),
                     TT_ERR_INVALID);
    assert_non_null(tt_requires_grad_(y, false));
    assert_int_equal(tt_register_post_accumulate_grad_hook(y, note, &refused, .destroy = count_release), TT_ERR_STATE);
    assert_true(freed == 0 && no_leaf == 1 && refused == 2);
    tt_clear_error();
    tt_tensor_free(x);
    tt_tensor_free(y);
    assert_true(freed == 1 && no_leaf == 1);
}

static void a_linear_layer_settles_its_bias_before_its_weight(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    trace t = {0};
    tt_tensor *w = tt_requires_grad_(tt_ones(TT_SHAPE(2, 3), TT_F32), true), *b = leaf(0);
    assert_int_equal(tt_register_post_accumulate_grad_hook(w, note, &t), TT_OK);
    assert_int_equal(tt_register_post_accumulate_grad_hook(b, note, &t), TT_OK);
    assert_int_equal(tt_backward(tt_sum(tt_linear(tt_ones(TT_SHAPE(4, 3), TT_F32), w, b))), TT_OK);
    assert_ptr_equal(t.seen[0], b);
    assert_ptr_equal(t.seen[1], w);
}

static void a_failing_hook_ends_the_pass(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    trace t = {.result = TT_ERR_PEER};
    tt_tensor *early = leaf(1), *late = leaf(1);
    assert_int_equal(tt_register_post_accumulate_grad_hook(late, note, &t), TT_OK);
    assert_int_equal(tt_register_post_accumulate_grad_hook(early, note, &t), TT_OK);
    tt_tensor *loss = tt_sum(tt_mul(tt_scale(early, 1), late));
    assert_int_equal(tt_backward(loss), TT_ERR_PEER);
    assert_int_equal(tt_last_status(), TT_ERR_PEER); /* also of a hook that recorded nothing */
    assert_int_equal(t.n, 1);
    assert_int_equal(t.ended, 1);
    assert_int_equal(t.pass, TT_ERR_PEER);
    assert_null(tt_grad(early));
    assert_int_equal(tt_backward(loss), TT_ERR_STATE);
    t.result = TT_OK; /* the next pass starts clean */
    assert_int_equal(tt_backward(tt_sum(tt_mul(tt_scale(early, 1), late))), TT_OK);
    assert_int_equal(t.n, 3);
    tt_clear_error();
}

static tt_status hook_that_computes(tt_tensor *x, void *user) {
    *(bool *)user = tt_requires_grad(tt_scale(x, 2));
    return tt_backward(tt_sum(x)); /* not from here */
}

static void a_hook_records_nothing_and_starts_no_pass(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    bool recorded = true;
    tt_tensor *x = leaf(1);
    assert_int_equal(tt_register_post_accumulate_grad_hook(x, hook_that_computes, &recorded), TT_OK);
    assert_int_equal(tt_backward(tt_sum(x)), TT_ERR_STATE);
    assert_false(recorded);
    tt_clear_error();
}

/* ---- gradients that live elsewhere ---- */

static tt_status stop_collecting(tt_tensor *x, void *user) {
    (void)user;
    return tt_requires_grad_(x, false) ? TT_OK : tt_last_status();
}

static void a_hook_cannot_end_its_own_leaf(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_ones(TT_SHAPE(2), TT_F32), true);
    assert_int_equal(tt_register_post_accumulate_grad_hook(x, NULL, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_register_post_accumulate_grad_hook(x, stop_collecting, NULL), TT_OK);
    assert_int_equal(tt_register_post_accumulate_grad_hook(x, stop_collecting, NULL), TT_OK);
    assert_int_equal(tt_backward(tt_sum(x)), TT_ERR_STATE);
    assert_true(tt_requires_grad(x));
    assert_non_null(tt_requires_grad_(x, false));
    tt_clear_error();
}

static void gradient_storage_moves_with_its_values(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    float bucket[2] = {7, 7};
    tt_tensor *x = leaf(1);
    assert_int_equal(tt__leaf_set_grad_storage(x, bucket), TT_OK);
    assert_null(tt_grad(x));
    assert_int_equal(tt_backward(tt_sum(tt_scale(x, 5))), TT_OK);
    assert_true(bucket[0] == 5 && bucket[1] == 5); /* overwritten, not added to */
    assert_ptr_equal(tt_tensor_data(tt_grad(x)), bucket);
    assert_int_equal(tt__leaf_set_grad_storage(x, NULL), TT_OK);
    assert_ptr_not_equal(tt_tensor_data(tt_grad(x)), bucket);
    assert_true(grad0(x) == 5);
    assert_int_equal(tt__leaf_set_grad_storage(x, bucket + 0), TT_OK);
    assert_true(grad0(x) == 5);
    assert_int_equal(tt__leaf_set_grad_storage(tt_scale(x, 1), bucket), TT_ERR_STATE);
    assert_int_equal(tt__leaf_set_grad_storage(x, NULL), TT_OK);
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_add_up_until_zeroed),
        cmocka_unit_test(a_diamond_is_walked_once),
        cmocka_unit_test(records_live_without_a_scope),
        cmocka_unit_test(gradients_are_converted_with_the_values),
        cmocka_unit_test(a_leaf_is_a_loss_too),
        cmocka_unit_test(backward_refuses),
        cmocka_unit_test(a_scope_forgets_its_records),
        cmocka_unit_test(nothing_is_recorded_under_no_grad),
        cmocka_unit_test(what_wants_a_gradient_is_settled_when_a_call_is_recorded),
        cmocka_unit_test(threads_share_what_they_only_read),
        cmocka_unit_test(hooks_run_when_a_gradient_is_final),
        cmocka_unit_test(what_a_hook_owns_is_released_once),
        cmocka_unit_test(a_linear_layer_settles_its_bias_before_its_weight),
        cmocka_unit_test(a_failing_hook_ends_the_pass),
        cmocka_unit_test(a_hook_records_nothing_and_starts_no_pass),
        cmocka_unit_test(a_hook_cannot_end_its_own_leaf),
        cmocka_unit_test(gradient_storage_moves_with_its_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
