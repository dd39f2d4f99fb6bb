/* Lists of names made from a module's tree. */
#ifndef TT_NN_MODULE_LISTS_H
#define TT_NN_MODULE_LISTS_H

#include <tutti/nn.h>

#include "autograd/pointer_map.h"
#include "tensor/core/named_tensors.h"

typedef enum tt__list_kind {
    TT__LIST_PARAMETERS,
    TT__LIST_BUFFERS,
    TT__LIST_STATE,
    TT__LIST_MODULES,
    TT__LIST_KINDS
} tt__list_kind;

typedef struct tt__module_list {
    _Atomic bool made;
    size_t count, room;
    tt__pointer_map seen; /* tensors that have a place, while the list is made */
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

/* Drop the module's lists, and those of all modules that contain or wrap it. */
void tt__module_changed(tt_module *module);
void tt__module_drop_lists(tt_module *module);

#endif
