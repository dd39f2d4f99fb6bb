/* Zip archives, read by libzip, which compares checksums and the two headers of each record. Files may be hostile:
 * nothing that a header claims is believed before the bytes are there. */
#ifndef TT_ZIP_ZIP_H
#define TT_ZIP_ZIP_H

#include "base/bytes.h"
#include "base/files/atomic_file.h"

#include <tutti/base.h>

/* libzip, loaded by the first archive that is read: it brings libraries of its own, for which a process without
 * archives need not wait. */
typedef struct tt__zip tt__zip;

/* Return libzip's functions; NULL and TT_ERR_UNSUPPORTED: there is no libzip. Cheap once it is loaded. Thread-safe. */
const tt__zip *tt__zip_get(void);

/* ---- reading ---- */

typedef struct tt__zip_reader {
    const char *name; /* for errors; borrowed */
    const tt__zip *lib;
    struct zip *zip;
    uint64_t count; /* of records */
} tt__zip_reader;

/* Open an archive of `size` bytes: in memory (`data`, borrowed until it is closed), or in the file fd if data is NULL,
 * which stays the caller's. On failure there is nothing to close. TT_ERR_FORMAT also for one without records. */
tt_status tt__zip_open(tt__zip_reader *reader, const char *name, const void *data, int fd, uint64_t size);

/* Harmless on a zeroed reader. */
void tt__zip_close(tt__zip_reader *reader);

/* The headers of a record. */
typedef struct tt__zip_record {
    const char *name; /* as it stands there; borrowed from the reader */
    uint64_t size, packed_size;
    bool stored, deflated; /* neither: compressed in another way, or encrypted */
} tt__zip_record;

tt_status tt__zip_look(const tt__zip_reader *reader, uint64_t index, tt__zip_record *record);

/* A record that is being read, from its beginning to its end. */
typedef struct tt__zip_stream {
    const tt__zip_reader *reader;
    const char *record; /* its name, for errors; borrowed */
    struct zip_file *file;
} tt__zip_stream;

/* After success tt__zip_stream_close() must follow. */
tt_status tt__zip_stream_open(tt__zip_stream *stream, const tt__zip_reader *reader, uint64_t index, const char *record);

/* Read `size` bytes; *got is less only at the end, where the checksum has been compared. */
tt_status tt__zip_stream_read(tt__zip_stream *stream, void *to, uint64_t size, uint64_t *got);
void tt__zip_stream_close(tt__zip_stream *stream);

/* Read a record of exactly `size` bytes. */
tt_status tt__zip_read(const tt__zip_reader *reader, uint64_t index, const char *record, void *to, uint64_t size);

/* ---- writing, as PyTorch lays out its .pt files: nothing compressed, and the bytes of each record at a multiple of
 * 64, so that a reader may map them. All sizes are known before a record is written, so it goes straight into the file
 * that appears when it is whole. ---- */

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
