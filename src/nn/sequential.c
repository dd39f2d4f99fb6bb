#include "base/args.h"
#include "base/error.h"
#include "nn/module.h"

#include <stdio.h>

static const char who[] = "tt_nn_sequential";

static tt_tensor *sequential_forward(tt_module *self, tt_tensor *x) {
    for (int64_t i = 0; i < tt_module_child_count(self) && x; i++)
        x = tt_module_forward(tt_module_child_at(self, i), x);
    return x;
}

static tt_status give_back(tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    if (in_count != out_count)
        return tt__tensor_fail(TT_ERR_INVALID, "forward: an empty Sequential gives back its %lld tensors, not %lld",
                               (long long)in_count, (long long)out_count),
               TT_ERR_INVALID;
    for (int64_t i = 0; i < in_count; i++)
        out[i] = in[i];
    return TT_OK;
}

/* Run the children: the first takes all inputs, the last gives all outputs. */
static tt_status sequential_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                         int64_t out_count) {
    int64_t n = tt_module_child_count(self);
    tt_tensor *between = NULL;
    for (int64_t i = 0; i < n; i++) {
        tt_tensor *const *from = i == 0 ? in : (tt_tensor *[]){between};
        tt_tensor *to = NULL;
        bool last = i == n - 1;
        TT__TRY(tt_module_forward_many(tt_module_child_at(self, i), from, i == 0 ? in_count : 1, last ? out : &to,
                                       last ? out_count : 1));
        between = to;
    }
    return n ? TT_OK : give_back(in, in_count, out, out_count);
}

static const tt_module_class sequential_class =
    TT_MODULE_CLASS(.name = "Sequential", .forward = sequential_forward, .forward_many = sequential_forward_many);

/* ---- making ---- */

/* Return the i-th child, named or not. */
static tt_module *sequential_child(const tt_nn_sequential_args *a, int64_t i) {
    return a->named ? a->named[i].module : a->children[i];
}

static bool came_before(const tt_nn_sequential_args *a, int64_t i) {
    for (int64_t j = 0; j < i; j++)
        if (sequential_child(a, j) == sequential_child(a, i))
            return true;
    return false;
}

/* Check that the children are there, each once, none with a parent. */
static tt_status check_children(const tt_nn_sequential_args *a) {
    for (int64_t i = 0; i < a->count; i++) {
        const tt_module *child = sequential_child(a, i);
        if (!child)
            return tt__fail_argument("%s: child %lld is NULL", who, (long long)i);
        if (child->parent || came_before(a, i))
            return tt__fail(TT_ERR_STATE, "%s: child %lld belongs to a module already", who, (long long)i);
    }
    return TT_OK;
}

/* Free the children from number `from` on that have no parent; from the end, so that one that comes twice is freed at
 * its first place. */
static void free_children(const tt_nn_sequential_args *a, int64_t from) {
    for (int64_t i = a->count; i-- > from;)
        if (sequential_child(a, i) && !came_before(a, i) && !sequential_child(a, i)->parent)
            tt_module_free(sequential_child(a, i));
}

static tt_status sequential_add(tt_module *module, const tt_nn_sequential_args *a, int64_t i) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)i);
    return tt_module_add_module(module, a->named ? a->named[i].name : number, sequential_child(a, i));
}

tt_module *tt_nn_sequential_with(const tt_nn_sequential_args *args, size_t size) {
    tt_nn_sequential_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.count < 0 || (a.count && !a.children == !a.named))
        return tt__fail_null(TT_ERR_INVALID, "%s: expected either `children` or `named`, got %s of %lld", who,
                             a.children ? "both" : "neither", (long long)a.count);
    tt_module *module = check_children(&a) ? NULL : tt_module_new(&sequential_class, NULL);
    if (!module) {
        free_children(&a, 0);
        return NULL;
    }
    for (int64_t i = 0; i < a.count; i++) {
        if (sequential_add(module, &a, i)) { /* which has freed that child */
            free_children(&a, i + 1);
            tt_module_free(module);
            return NULL;
        }
    }
    return module;
}
