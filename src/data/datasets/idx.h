/* IDX files, the format of MNIST: two zero bytes, a type, the number of dimensions, their sizes as 32-bit big-endian
 * numbers, then the elements, row-major, big-endian. */
#ifndef TT_DATA_IDX_H
#define TT_DATA_IDX_H

#include "data/files/source.h"

#include <tutti/data.h>

/* The type that follows the two zero bytes. */
typedef enum tt__idx_type {
    TT__IDX_U8 = 0x08,
    TT__IDX_I8 = 0x09,
    TT__IDX_I16 = 0x0b,
    TT__IDX_I32 = 0x0c,
    TT__IDX_F32 = 0x0d,
    TT__IDX_F64 = 0x0e
} tt__idx_type;

/* Decode a whole source: tt_idx_read() without the opening. */
tt_status tt__idx_decode(tt_tensor **out, tt__source *source);

#endif
