/* The zip archive that a .pt file is: records below one folder, none compressed.
 *
 *   NAME/data.pkl   NAME/data/0   NAME/data/1   NAME/version   ...
 *
 * Files are taken for hostile: records' names are only compared, never used as paths, and all sizes together are
 * checked against the file's. */
#ifndef TT_CHECKPOINT_ARCHIVE_H
#define TT_CHECKPOINT_ARCHIVE_H

#include "zip/zip.h"

typedef struct tt__archive_record {
    const char *name; /* without the folder; borrowed from the archive */
    uint64_t index, size;
} tt__archive_record;

typedef struct tt__archive {
    const char *name; /* for errors; borrowed */
    tt__zip_reader zip;
    size_t count;
    tt__archive_record *records; /* sorted by name */
} tt__archive;

/* Open an archive of `size` bytes: in memory (`data`, borrowed until it is closed), or in the file fd if data is NULL,
 * which stays the caller's. On failure there is nothing to close. */
tt_status tt__archive_open(tt__archive *archive, const char *name, const void *data, int fd, uint64_t size);

/* Find a record; NULL if there is none. */
const tt__archive_record *tt__archive_find(const tt__archive *archive, const char *record);

/* Read all record->size bytes of it. */
tt_status tt__archive_read(const tt__archive *archive, const tt__archive_record *record, void *to);

/* Harmless on a zeroed archive. */
void tt__archive_close(tt__archive *archive);

#endif
