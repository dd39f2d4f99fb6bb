#include "base/error.h"
#include "nn/module.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct sequential {
    size_t n;
    tt_module *child[]; /* borrowed from the module */
} sequential;

static tt_tensor *forward(tt_module *self, tt_tensor *x) {
    const sequential *s = tt_module_user(self);
    for (size_t i = 0; i < s->n && x; i++)
        x = tt_module_forward(s->child[i], x);
    return x;
}

static void destroy(tt_module *self) { free(tt_module_user(self)); }

static const tt_module_class sequential_class = {.name = "Sequential", .forward = forward, .destroy = destroy};

static bool came_before(tt_module *const *children, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (children[j] == children[i])
            return true;
    return false;
}

/* All there, each once, none with a parent. */
static tt_status check(tt_module *const *children, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!children[i])
            return tt_last_status() ? tt_last_status()
                                    : tt__fail(TT_ERR_INVALID, "tt_nn_sequential: child %zu is NULL", i);
        if (tt__module_has_parent(children[i]) || came_before(children, i))
            return tt__fail(TT_ERR_STATE, "tt_nn_sequential: child %zu belongs to a module already", i);
    }
    return TT_OK;
}

static void free_children(tt_module *const *children, size_t n) {
    for (size_t i = n; i-- > 0;) /* from the end, so that one that comes twice is freed at its first place */
        if (children[i] && !came_before(children, i) && !tt__module_has_parent(children[i]))
            tt_module_free(children[i]);
}

tt_module *tt_nn_sequential_from(tt_module *const *children, size_t n) {
    sequential *s = NULL;
    tt_module *module = NULL;
    if (n && !children)
        return tt__fail_null(TT_ERR_INVALID, "tt_nn_sequential: the list of %zu children is NULL", n);
    if (check(children, n))
        goto fail;
    s = calloc(1, sizeof *s + n * sizeof *s->child);
    module = s ? tt_module_new(&sequential_class, s) : NULL;
    if (!module) {
        free(s);
        tt__fail(TT_ERR_MEMORY, "tt_nn_sequential: no memory for a module");
        goto fail;
    }
    for (; s->n < n; s->n++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", s->n);
        size_t i = s->n;
        s->child[i] = children[i];
        if (tt_module_add_module(module, name, children[i])) { /* frees that child */
            free_children(children + i + 1, n - i - 1);
            tt_module_free(module);
            return NULL;
        }
    }
    return module;
fail:
    free_children(children, n);
    return NULL;
}
