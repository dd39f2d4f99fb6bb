/* The names in .npz files, which also the names of tensors in a tree of values must fit. */
#ifndef TT_DATA_NPZ_H
#define TT_DATA_NPZ_H

#include <tutti/datasets.h>

/* Check that no name comes twice. Else the error has this status, and begins with `who`. */
tt_status tt__npz_check_names(const char *who, tt_status status, const char *const *names, int64_t count);

#endif
