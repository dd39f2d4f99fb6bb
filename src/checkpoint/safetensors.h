/* The safetensors format: a u64 (little-endian) N, N bytes of JSON, then the data of all tensors without gaps:
 *
 *   {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
 *
 * data_offsets: [begin, end) in bytes from the end of the JSON. Row-major, little-endian, no padding between
 * tensors. */
#ifndef TT_CHECKPOINT_SAFETENSORS_H
#define TT_CHECKPOINT_SAFETENSORS_H

#include "base/text/plain_text.h"

#include <tutti/checkpoint.h>

#include <jansson.h>
/* The reference reader's limit on N. */
#define TT__SAFETENSORS_MAX_HEADER UINT64_C(100000000)

#define TT__SAFETENSORS_METADATA "__metadata__"

/* Return the format's name of one of our types. */
const char *tt__safetensors_dtype_name(tt_dtype dtype);

struct tt_safetensors {
    json_t *header; /* owns the names and the metadata */
    size_t count, skipped_count;
    const char **names, **skipped;
    tt_tensor **tensors;
    tt_named_tensors list;  /* of names and tensors, for the caller */
    tt_safetensors **parts; /* of an index: its files, which own names and tensors */
    size_t part_count;
};

/* Open a regular file for reading: a descriptor, the caller's to close after success, and its size. TT_ERR_IO names the
 * file. Never waits for a FIFO's writer. */
tt_status tt__checkpoint_file_open(int *fd, uint64_t *size, const char *path);

/* Read one file. */
tt_status tt__safetensors_read_file(tt_safetensors **out, const char *path, bool skip_unsupported);

#endif
