/* Modules that are made of a list of children. */
#ifndef TT_NN_CONTAINER_H
#define TT_NN_CONTAINER_H

#include <tutti/nn.h>

/* Make a module of class `cls` that owns these children; on failure they are freed. `who` begins errors. */
tt_module *tt__container_new(const char *who, const tt_module_class *cls, const tt_nn_sequential_args *args);

#endif
