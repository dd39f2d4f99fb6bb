/* .npy, NumPy's format of one array, in files and in the archives that .npz files are:
 *
 *   93 "NUMPY"  version (2 bytes)  length of the header (u16; from version 2 on u32)
 *   header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  padded with spaces, a line end
 *   elements */
#ifndef TT_DATA_NPY_H
#define TT_DATA_NPY_H

#include "base/bytes.h"

#include <tutti/datasets.h>
#include <tutti/tensor.h>

/* Where the bytes come from. */
typedef struct tt__npy_input {
    const char *name;                                                   /* for errors; borrowed */
    uint64_t limit;                                                     /* the most bytes that can come */
    tt_status (*read)(void *from, void *out, size_t size, size_t *got); /* *got is less only at the end */
    void *from;
} tt__npy_input;

/* Read an array. *out: the caller's; NULL after a failure. */
tt_status tt__npy_decode(tt_tensor **out, const tt__npy_input *input);

/* Put magic number and header of x; `padded` to a multiple of 64 bytes. */
void tt__npy_put_header(tt__bytes *to, const tt_tensor *x);

/* ---- .npz: the names in an archive, and those of tensors in a tree of values ---- */

/* Check that no name comes twice. The error has this status, and begins with `who`. */
tt_status tt__npz_check_names(const char *who, tt_status status, const char *const *names, int64_t count);

#endif
