/* Writing the zip archive that a .pt file is, as PyTorch lays it out: nothing compressed, and the bytes of each record
 * at a multiple of 64, so that a reader may map them. All sizes are known before a record is written, so it goes
 * straight into the file that appears when it is whole. */
#ifndef TT_CHECKPOINT_ARCHIVE_WRITE_H
#define TT_CHECKPOINT_ARCHIVE_WRITE_H

#include "base/atomic_file.h"
#include "base/bytes.h"

typedef struct tt__archive_writer {
    tt__atomic_file file;
    tt__bytes central; /* the directory that ends the file */
    uint64_t count;
} tt__archive_writer;

/* Start an archive at `path`. After success commit or abort must follow. */
tt_status tt__archive_create(tt__archive_writer *w, const char *path);

/* Add a record; its name is without the folder. */
tt_status tt__archive_add(tt__archive_writer *w, const char *record, const void *data, uint64_t size);

/* Write the directory and put the file in place. The writer is released either way. */
tt_status tt__archive_commit(tt__archive_writer *w);

/* Give up: what was at the path stays. */
void tt__archive_abort(tt__archive_writer *w);

#endif
