/* How a run of tokens is cut into examples. */
#ifndef TT_DATA_WINDOWS_H
#define TT_DATA_WINDOWS_H

#include <tutti/data.h>

typedef struct tt__windows {
    int64_t tokens, block_size, stride, count; /* `count`: of examples */
} tt__windows;

/* Count the windows of block_size tokens that a following one is known for. stride 0 = block_size. TT_ERR_INVALID: a
 * number out of range; TT_ERR_FORMAT: too few tokens. `who` begins errors. */
tt_status tt__windows_make(tt__windows *w, const char *who, int64_t tokens, int64_t block_size, int64_t stride);

/* Return the spec of x and of y. */
tt_tensor_spec tt__windows_spec(const tt__windows *w);

#endif
