/* What PyTorch calls element types, and the storages of tensors that have them. */
#ifndef TT_CHECKPOINT_TORCH_TYPES_H
#define TT_CHECKPOINT_TORCH_TYPES_H

#include <tutti/base.h>

typedef struct tt__torch_type {
    const char *dtype;   /* "float32" of module torch */
    const char *storage; /* "FloatStorage" of module torch; NULL: it has none of its own */
    bool supported;
    tt_dtype ours; /* if it is supported */
} tt__torch_type;

/* Find a type by either name; NULL: there is none. */
const tt__torch_type *tt__torch_type_of_dtype(const char *name);
const tt__torch_type *tt__torch_type_of_storage(const char *name);

/* Is this the address of a type that is found here, and not of something else? */
bool tt__torch_type_is(const void *type);

/* Find the type that is ours. */
const tt__torch_type *tt__torch_type_find(tt_dtype dtype);

#endif
