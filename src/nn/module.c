/* The tree: modules, their children and parameters, and the lists of names made from it. */
#include "nn/module.h"

#include "base/error.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct child {
    char *name;
    tt_module *module;
} child;

typedef struct parameter {
    char *name;
    tt_tensor *tensor;
} parameter;

struct tt_module {
    const tt_module_class *cls;
    void *user;
    tt_module *parent;
    tt_module *wrapped; /* borrowed; NULL: no wrapper */
    child *children;
    size_t child_count;
    parameter *parameters;
    size_t parameter_count;
    /* All parameters of the tree below, made when asked for; dropped, up to the root, when the tree changes. */
    bool listed;
    size_t list_count;
    char **list_names;
    tt_tensor **list_tensors;
};

/* ---- making and freeing ---- */

tt_module *tt_module_new(const tt_module_class *cls, void *user) {
    if (!cls || !cls->forward)
        return tt__fail_null(TT_ERR_INVALID, "tt_module_new: expected a class with a forward function");
    tt_module *module = calloc(1, sizeof *module);
    if (!module)
        return tt__fail_null(TT_ERR_MEMORY, "tt_module_new: no memory for a %s", cls->name);
    module->cls = cls;
    module->user = user;
    return module;
}

tt_module *tt__module_wrapper(const tt_module_class *cls, void *user, tt_module *inner) {
    tt_module *module = tt_module_new(cls, user);
    if (module)
        module->wrapped = inner;
    return module;
}

tt_module *tt__module_wrapped(const tt_module *module) { return module ? module->wrapped : NULL; }

const tt_module_class *tt__module_class(const tt_module *module) { return module ? module->cls : NULL; }

bool tt__module_has_parent(const tt_module *module) { return module && module->parent; }

void *tt_module_user(const tt_module *module) { return module ? module->user : NULL; }

static void drop_list(tt_module *module) {
    for (size_t i = 0; i < module->list_count; i++)
        free(module->list_names[i]);
    free(module->list_names);
    free(module->list_tensors);
    module->list_names = NULL;
    module->list_tensors = NULL;
    module->list_count = 0;
    module->listed = false;
}

static void tree_changed(tt_module *module) {
    for (; module; module = module->parent)
        drop_list(module);
}

static void free_tree(tt_module *module) {
    if (module->cls->destroy)
        module->cls->destroy(module);
    drop_list(module);
    for (size_t i = 0; i < module->child_count; i++) {
        free_tree(module->children[i].module);
        free(module->children[i].name);
    }
    for (size_t i = 0; i < module->parameter_count; i++) {
        tt__tensor_disown(module->parameters[i].tensor);
        free(module->parameters[i].name);
    }
    free(module->children);
    free(module->parameters);
    free(module);
}

void tt_module_free(tt_module *module) {
    if (!module)
        return;
    if (module->parent) {
        tt__fail(TT_ERR_STATE, "tt_module_free: this %s belongs to a %s; free the root", module->cls->name,
                 module->parent->cls->name);
        return;
    }
    free_tree(module);
}

/* ---- the tree ---- */

static bool name_taken(const tt_module *module, const char *name) {
    for (size_t i = 0; i < module->child_count; i++)
        if (!strcmp(module->children[i].name, name))
            return true;
    for (size_t i = 0; i < module->parameter_count; i++)
        if (!strcmp(module->parameters[i].name, name))
            return true;
    return false;
}

static tt_status check_name(const char *who, const tt_module *module, const char *name) {
    if (!name || !*name || strchr(name, '.'))
        return tt__fail(TT_ERR_INVALID, "%s: expected a name without dots, got \"%s\"", who, name ? name : "NULL");
    if (module->wrapped)
        return tt__fail(TT_ERR_STATE, "%s: a %s only wraps another module; add \"%s\" to that one", who,
                        module->cls->name, name);
    if (name_taken(module, name))
        return tt__fail(TT_ERR_INVALID, "%s: this %s has a \"%s\" already", who, module->cls->name, name);
    return TT_OK;
}

/* One more entry of `size` bytes in an array of `count`; NULL if memory is out (the array stays). */
static void *grown(void *array, size_t count, size_t size) { return reallocarray(array, count + 1, size); }

static tt_status add_child(tt_module *parent, const char *name, tt_module *module) {
    if (!parent)
        return tt__fail(TT_ERR_INVALID, "tt_module_add_module: the parent of \"%s\" is NULL", name ? name : "");
    TT__TRY(check_name("tt_module_add_module", parent, name));
    child *children = grown(parent->children, parent->child_count, sizeof *children);
    char *copy = strdup(name);
    if (children)
        parent->children = children;
    if (!children || !copy) {
        free(copy);
        return tt__fail(TT_ERR_MEMORY, "tt_module_add_module: no memory for \"%s\"", name);
    }
    children[parent->child_count++] = (child){copy, module};
    module->parent = parent;
    tree_changed(parent);
    return TT_OK;
}

tt_status tt_module_add_module(tt_module *parent, const char *name, tt_module *module) {
    if (!module)
        return tt_last_status() ? tt_last_status()
                                : tt__fail(TT_ERR_INVALID, "tt_module_add_module: \"%s\" is NULL", name ? name : "");
    for (const tt_module *up = parent; up; up = up->parent)
        if (up == module)
            return tt__fail(TT_ERR_INVALID, "tt_module_add_module: a %s cannot be inside itself", module->cls->name);
    if (module->parent)
        return tt__fail(TT_ERR_STATE, "tt_module_add_module: \"%s\" belongs to a %s already", name ? name : "",
                        module->parent->cls->name);
    tt_status status = add_child(parent, name, module);
    if (status)
        free_tree(module);
    return status;
}

tt_status tt_module_register_parameter(tt_module *module, const char *name, tt_tensor *x) {
    static const char who[] = "tt_module_register_parameter";
    if (!x)
        return tt__tensor_first_error(who);
    if (!module)
        return tt__fail(TT_ERR_INVALID, "%s: the module of \"%s\" is NULL", who, name ? name : "");
    TT__TRY(check_name(who, module, name));
    if (!tt__is_float(x->dtype))
        return tt__fail(TT_ERR_DTYPE, "%s: expected \"%s\" f32 or f64, got %s", who, name, TT__DESCRIBE(x));
    parameter *parameters = grown(module->parameters, module->parameter_count, sizeof *parameters);
    if (parameters)
        module->parameters = parameters;
    char *copy = strdup(name);
    if (!parameters || !copy) {
        free(copy);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for \"%s\"", who, name);
    }
    if (!tt_requires_grad_(x, true) || tt__tensor_adopt(x, "a module")) {
        free(copy);
        return tt__fail_prefix("%s \"%s\"", who, name);
    }
    parameters[module->parameter_count++] = (parameter){copy, x};
    tree_changed(module);
    return TT_OK;
}

tt_module *tt_module_child(const tt_module *module, const char *name) {
    for (size_t i = 0; module && name && i < module->child_count; i++)
        if (!strcmp(module->children[i].name, name))
            return module->children[i].module;
    return tt__fail_null(TT_ERR_NOT_FOUND, "tt_module_child: no child \"%s\" in %s", name ? name : "NULL",
                         module ? module->cls->name : "NULL");
}

tt_tensor *tt_module_forward(tt_module *module, tt_tensor *x) {
    return module && x ? module->cls->forward(module, x) : NULL;
}

/* ---- lists ---- */

static size_t count_parameters(const tt_module *module) {
    if (module->wrapped)
        return count_parameters(module->wrapped);
    size_t n = module->parameter_count;
    for (size_t i = 0; i < module->child_count; i++)
        n += count_parameters(module->children[i].module);
    return n;
}

/* "prefix" + "name", or with a dot between; allocated. */
static char *joined(const char *prefix, const char *name) {
    char *out = NULL;
    return asprintf(&out, "%s%s%s", prefix, *prefix ? "." : "", name) < 0 ? NULL : out;
}

/* A module's own parameters come first, then those of its children. */
static bool list_into(tt_module *root, const tt_module *module, const char *prefix) {
    if (module->wrapped)
        return list_into(root, module->wrapped, prefix);
    for (size_t i = 0; i < module->parameter_count; i++) {
        char *name = joined(prefix, module->parameters[i].name);
        if (!name)
            return false;
        root->list_names[root->list_count] = name;
        root->list_tensors[root->list_count++] = module->parameters[i].tensor;
    }
    for (size_t i = 0; i < module->child_count; i++) {
        char *name = joined(prefix, module->children[i].name);
        bool done = name && list_into(root, module->children[i].module, name);
        free(name);
        if (!done)
            return false;
    }
    return true;
}

static tt_status make_list(tt_module *module) {
    size_t n = count_parameters(module);
    module->list_names = calloc(n ? n : 1, sizeof *module->list_names);
    module->list_tensors = calloc(n ? n : 1, sizeof *module->list_tensors);
    module->listed = module->list_names && module->list_tensors && list_into(module, module, "");
    if (module->listed)
        return TT_OK;
    drop_list(module);
    return tt__fail(TT_ERR_MEMORY, "tt_module_parameters: no memory for a list of %zu", n);
}

tt_named_tensors tt_module_parameters(tt_module *module) {
    while (module && module->wrapped)
        module = module->wrapped;
    if (!module || (!module->listed && make_list(module)))
        return (tt_named_tensors){.count = 0};
    return (tt_named_tensors){module->list_count, (const char *const *)module->list_names, module->list_tensors};
}

tt_named_tensors tt_module_state_dict(tt_module *module) { return tt_module_parameters(module); }
