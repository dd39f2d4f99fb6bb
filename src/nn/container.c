/* Modules made of a list of children (Sequential, ModuleList, ModuleDict), and any module as a chain of parts. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
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

/* Free the children from number `from` on that have no parent. Go from the end on, so that a child that is listed twice
 * is freed at its first place. */
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

/* Make a module of class `cls` that owns these children; on failure they are freed. `who` begins errors. */
static tt_module *container_new(const char *who, const tt_module_class *cls, const tt_nn_sequential_args *a) {
    if (a->count < 0 || (a->count && !a->children == !a->named))
        return tt__fail_null(TT_ERR_INVALID, "%s: expected either `children` or `named`, got %s of %lld", who,
                             a->children ? "both" : "neither", (long long)a->count);
    tt_module *module = check_children(who, a) ? NULL : tt__module_new(cls, NULL);
    if (!module) {
        free_children(a, 0);
        return NULL;
    }
    for (int64_t i = 0; i < a->count; i++) {
        if (container_add(module, a, i)) { /* a failed call has freed the child */
            free_children(a, i + 1);
            tt_module_free(module);
            return NULL;
        }
    }
    return module;
}

static bool may_be_cut(const tt_module *module) {
    const tt_module_class *cls = &module->cls;
    /* a class with part_count also has a chain's other two functions */
    return cls->part_count && !module->hook_count && !module->amp.on;
}

int64_t tt__chain_length(tt_module *module) {
    int64_t count = may_be_cut(module) ? module->cls.part_count(module) : 0;
    return count < 1 ? 1 : count;
}

/* Has the module parts? With a count below 1 its whole forward is the one part. */
static bool module_is_chain(tt_module *module) { return may_be_cut(module) && module->cls.part_count(module) >= 1; }

tt_tensor *tt__chain_forward(tt_module *module, int64_t i, tt_tensor *x) {
    return module_is_chain(module) ? module->cls.forward_part(module, i, x) : tt_module_forward(module, x);
}

tt_module *tt__chain_module(tt_module *module, int64_t i, int64_t k) {
    if (module_is_chain(module))
        return module->cls.part_module(module, i, k);
    return k == 0 ? module : NULL;
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

/* Run the children: the first takes all inputs, the last gives all outputs. Tensors between children, which may be most
 * of a network's memory, are freed as soon as the records hold what they need. */
static tt_status sequential_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                         int64_t out_count) {
    int64_t n = tt_module_child_count(self);
    tt_tensor *between = NULL;
    tt_status status = n ? TT_OK : give_back(in, in_count, out, out_count);
    for (int64_t i = 0; i < n && !status; i++) {
        tt_tensor *const x = between, *y = NULL;
        bool first = i == 0, last = i == n - 1;
        tt_tensor **to = last ? out : &y;
        int64_t to_count = last ? out_count : 1;
        status =
            tt_module_forward_many(tt_module_child_at(self, i), first ? in : &x, first ? in_count : 1, to, to_count);
        if (x && !x->shown && !tt__tensor_is_among(x, in, in_count) && !tt__tensor_is_among(x, to, to_count))
            tt__abandon(x);
        between = y;
    }
    return status;
}

static tt_tensor *sequential_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *y = NULL;
    return sequential_forward_many(self, &x, 1, &y, 1) ? NULL : y;
}

/* ---- as a chain: the children's parts ---- */

static int64_t sequential_part_count(tt_module *self) {
    int64_t parts = 0, children = tt_module_child_count(self);
    for (int64_t i = 0; i < children; i++)
        parts += tt__chain_length(tt_module_child_at(self, i));
    return children ? parts : 1;
}

/* The child that has part *part; *part becomes the part's number within the child. NULL: an empty Sequential. */
static tt_module *child_of_part(tt_module *self, int64_t *part) {
    for (int64_t i = 0; i < tt_module_child_count(self); i++) {
        tt_module *child = tt_module_child_at(self, i);
        int64_t length = tt__chain_length(child);
        if (*part < length)
            return child;
        *part -= length;
    }
    return NULL;
}

static tt_tensor *sequential_forward_part(tt_module *self, int64_t part, tt_tensor *x) {
    int64_t of_child = part;
    tt_module *child = child_of_part(self, &of_child);
    if (child)
        return tt__chain_forward(child, of_child, x);
    if (part == 0 && tt_module_child_count(self) == 0)
        return x;
    return tt__tensor_fail(TT_ERR_STATE, "forward: a Sequential of %lld parts has no part %lld",
                           (long long)sequential_part_count(self), (long long)part);
}

static tt_module *sequential_part_module(tt_module *self, int64_t part, int64_t k) {
    tt_module *child = child_of_part(self, &part);
    return child ? tt__chain_module(child, part, k) : NULL;
}

static const tt_module_class sequential_class =
    TT_MODULE_CLASS(.name = "Sequential", .forward = sequential_forward, .forward_many = sequential_forward_many,
                    .part_count = sequential_part_count, .forward_part = sequential_forward_part,
                    .part_module = sequential_part_module);

tt_module *tt_nn_sequential_with(const tt_nn_sequential_args *args, size_t size) {
    tt_nn_sequential_args a;
    TT__ARGS_COPY(a, args, size);
    return container_new("tt_nn_sequential", &sequential_class, &a);
}

/* Lists and dictionaries of children, which the program calls one by one. */

static tt_status no_forward(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                            int64_t out_count) {
    (void)in, (void)in_count, (void)out, (void)out_count;
    tt__tensor_fail(TT_ERR_UNSUPPORTED,
                    "forward: a %s has none; run its children, which tt_module_child_at() and tt_module_child() give",
                    tt_module_class_name(self));
    return TT_ERR_UNSUPPORTED;
}

static const tt_module_class module_list_class = TT_MODULE_CLASS(.name = "ModuleList", .forward_many = no_forward);
static const tt_module_class module_dict_class = TT_MODULE_CLASS(.name = "ModuleDict", .forward_many = no_forward);

tt_module *tt_nn_module_list_with(const tt_nn_sequential_args *args, size_t size) {
    tt_nn_sequential_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.named)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_nn_module_list: expected `children`, whose names are numbers, got `named`; "
                             "tt_nn_module_dict() takes names");
    return container_new("tt_nn_module_list", &module_list_class, &a);
}

tt_module *tt_nn_module_dict_with(const tt_nn_sequential_args *args, size_t size) {
    tt_nn_sequential_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.children)
        return tt__fail_null(TT_ERR_INVALID, "tt_nn_module_dict: expected `named`, got `children` without names");
    return container_new("tt_nn_module_dict", &module_dict_class, &a);
}

tt_status tt_module_list_append(tt_module *list, tt_module *child) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)tt_module_child_count(list));
    if (!list || tt__module_class(list) == &module_list_class)
        return tt_module_add_module(list, number, child);
    if (child && !child->parent)
        tt_module_free(child);
    return tt__fail(TT_ERR_INVALID, "tt_module_list_append: expected a ModuleList, got a %s",
                    tt_module_class_name(list));
}
