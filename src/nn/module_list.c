/* Lists and dictionaries of children, which whoever has them calls one by one. */
#include "base/args.h"
#include "base/error.h"
#include "nn/container.h"
#include "nn/module.h"

#include <stdio.h>

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
    return tt__container_new("tt_nn_module_list", &module_list_class, &a);
}

tt_module *tt_nn_module_dict_with(const tt_nn_sequential_args *args, size_t size) {
    tt_nn_sequential_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.children)
        return tt__fail_null(TT_ERR_INVALID, "tt_nn_module_dict: expected `named`, got `children` without names");
    return tt__container_new("tt_nn_module_dict", &module_dict_class, &a);
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
