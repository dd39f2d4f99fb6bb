/* Misuse of memory, made visible. TT_DEBUG=1: what was freed is kept for long instead of used again, so that a second
 * free and a use after the end are recognised. Always: a warning in the log, once, where tensors pile up outside of
 * scopes. */
#ifndef TT_TENSOR_DEBUG_H
#define TT_TENSOR_DEBUG_H

#include <stddef.h>

/* Give the pool's block back: at once or, under TT_DEBUG=1, much later. */
void tt__debug_free(void *block);

/* There is one tensor more (1) or less (-1) that was made with no scope open. */
void tt__debug_count_unscoped(int change);

#endif
