/* .npz files: zip archives of .npy records. */
#ifndef TT_DATA_NPZ_H
#define TT_DATA_NPZ_H

#include <tutti/datasets.h>

#define TT__NPZ_ENDING ".npy"

/* Decode an archive of `size` bytes: in memory (`data`), or in the file fd if data is NULL. tt_npz_read() without the
 * opening. */
tt_status tt__npz_decode(tt_npz **out, const char *name, const void *data, int fd, uint64_t size);

/* Check that no name comes twice: else an error of this status that begins with `who`. */
tt_status tt__npz_check_names(const char *who, tt_status status, const char *const *names, int64_t count);

#endif
