/* Detection of memory misuse. TT_DEBUG=1: freed tensors are kept for long instead of reused, so that a second free and
 * a use after the end are recognised. Always: a warning in the log, once, where tensors pile up outside of scopes. */
#ifndef TT_TENSOR_DEBUG_H
#define TT_TENSOR_DEBUG_H

#include <stddef.h>

/* Give the pool's block back: at once or, under TT_DEBUG=1, much later. */
void tt__debug_free(void *block);

/* Count one more (1) or one less (-1) of the tensors made with no scope open. */
void tt__debug_count_unscoped(int change);

#endif
