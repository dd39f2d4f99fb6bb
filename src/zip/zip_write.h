/* Writing zip archives as PyTorch lays out its .pt files: nothing compressed, and the bytes of each record at a
 * multiple of 64, so that a reader may map them. All sizes are known before a record is written, so it goes straight
 * into the file that appears when it is whole. */
#ifndef TT_ZIP_ZIP_WRITE_H
#define TT_ZIP_ZIP_WRITE_H

#include "base/bytes.h"
#include "base/files/atomic_file.h"

typedef struct tt__zip_writer {
    tt__atomic_file file;
    tt__bytes central; /* the directory that ends the file */
    uint64_t count;
} tt__zip_writer;

/* Start an archive at `path`. After success commit or abort must follow. */
tt_status tt__zip_create(tt__zip_writer *w, const char *path);

/* Add a record: `count` parts, one behind the other. TT_ERR_INVALID: a name of 64 KiB or more. */
tt_status tt__zip_add(tt__zip_writer *w, const char *record, const tt__span *parts, size_t count);

/* Write the directory and put the file in place. The writer is released either way. */
tt_status tt__zip_commit(tt__zip_writer *w);

/* Give up: a file that was at the path stays. */
void tt__zip_abort(tt__zip_writer *w);

#endif
