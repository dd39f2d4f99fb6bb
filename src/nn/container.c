#include "nn/container.h"

#include "base/error.h"
#include "nn/module.h"

#include <stdio.h>

/* Return the i-th child, named or not. */
static tt_module *container_child(const tt_nn_sequential_args *a, int64_t i) {
    return a->named ? a->named[i].module : a->children[i];
}

static bool child_came_before(const tt_nn_sequential_args *a, int64_t i) {
    for (int64_t j = 0; j < i; j++)
        if (container_child(a, j) == container_child(a, i))
            return true;
    return false;
}

/* Check that the children are there, each once, none with a parent. */
static tt_status check_children(const char *who, const tt_nn_sequential_args *a) {
    for (int64_t i = 0; i < a->count; i++) {
        const tt_module *child = container_child(a, i);
        if (!child)
            return tt__fail_argument("%s: child %lld is NULL", who, (long long)i);
        if (child->parent || child_came_before(a, i))
            return tt__fail(TT_ERR_STATE, "%s: child %lld belongs to a module already", who, (long long)i);
    }
    return TT_OK;
}

/* Free the children from number `from` on that have no parent; from the end, so that one that comes twice is freed at
 * its first place. */
static void free_children(const tt_nn_sequential_args *a, int64_t from) {
    for (int64_t i = a->count; i-- > from;)
        if (container_child(a, i) && !child_came_before(a, i) && !container_child(a, i)->parent)
            tt_module_free(container_child(a, i));
}

static tt_status container_add(tt_module *module, const tt_nn_sequential_args *a, int64_t i) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)i);
    return tt_module_add_module(module, a->named ? a->named[i].name : number, container_child(a, i));
}

tt_module *tt__container_new(const char *who, const tt_module_class *cls, const tt_nn_sequential_args *a) {
    if (a->count < 0 || (a->count && !a->children == !a->named))
        return tt__fail_null(TT_ERR_INVALID, "%s: expected either `children` or `named`, got %s of %lld", who,
                             a->children ? "both" : "neither", (long long)a->count);
    tt_module *module = check_children(who, a) ? NULL : tt__module_new(cls, NULL);
    if (!module) {
        free_children(a, 0);
        return NULL;
    }
    for (int64_t i = 0; i < a->count; i++) {
        if (container_add(module, a, i)) { /* which has freed that child */
            free_children(a, i + 1);
            tt_module_free(module);
            return NULL;
        }
    }
    return module;
}
