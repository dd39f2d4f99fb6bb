/* A warning in the log, once, where tensors that only tt_tensor_free() ends pile up outside of scopes, as in a loop
 * without a scope. Tensors that are kept, held (parameters, buffers, state, data) or leaves are not counted. */
#ifndef TT_TENSOR_UNSCOPED_H
#define TT_TENSOR_UNSCOPED_H

#include <stddef.h>

/* Count a tensor that was made with no scope open, and the bytes it brought / count it no more. From any thread. */
void tt__unscoped_add(size_t bytes);
void tt__unscoped_remove(size_t bytes);

#endif
