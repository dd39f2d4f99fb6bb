/* The inside of a module, for layers above nn. */
#ifndef TT_NN_MODULE_H
#define TT_NN_MODULE_H

#include <tutti/nn.h>

/* A module whose forward is cls->forward, and whose parameters and state_dict are those of `inner`, which it borrows. */
tt_module *tt__module_wrapper(const tt_module_class *cls, void *user, tt_module *inner);
tt_module *tt__module_wrapped(const tt_module *module); /* NULL if it is no wrapper */

bool tt__module_has_parent(const tt_module *module);

/* The class a module was made with: how a layer above recognises its own. */
const tt_module_class *tt__module_class(const tt_module *module);

#endif
