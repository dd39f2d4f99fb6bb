/* Sizes of element types, without a call. */
#ifndef TT_BASE_DTYPE_H
#define TT_BASE_DTYPE_H

#include <tutti/base.h>

enum { TT__DTYPES = TT_BOOL + 1 };

extern const unsigned char tt__dtype_sizes[TT__DTYPES];

/* Bytes of an element; 0 for no element type. */
static inline size_t tt__dtype_size(tt_dtype dtype) {
    return (unsigned)dtype < TT__DTYPES ? tt__dtype_sizes[dtype] : 0;
}

#endif
