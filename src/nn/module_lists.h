/* Lists of names made from a module's tree. */
#ifndef TT_NN_MODULE_LISTS_H
#define TT_NN_MODULE_LISTS_H

#include <tutti/nn.h>

typedef enum tt__list_kind {
    TT__LIST_PARAMETERS,
    TT__LIST_BUFFERS,
    TT__LIST_STATE,
    TT__LIST_MODULES,
    TT__LIST_KINDS
} tt__list_kind;

typedef struct tt__module_list {
    bool made;
    size_t count, room;
    char **names;
    union {
        void **items;
        tt_tensor **tensors;
        tt_module **modules;
    };
    union { /* what the caller sees */
        tt_named_tensors as_tensors;
        tt_named_modules as_modules;
    };
} tt__module_list;

/* Check a list that a program gives: made by TT_NAMED_TENSORS, with arrays; `who` begins the error. NULL is refused,
 * too: a list that wasn't made keeps its error. With `names` each entry must have a name and a tensor. */
tt_status tt__named_tensors_check(const char *who, const tt_named_tensors *list, bool names);

/* Drop the module's lists, and those of all modules that contain or wrap it. */
void tt__module_changed(tt_module *module);
void tt__module_drop_lists(tt_module *module);

#endif
