/* The safetensors format: a u64 (little-endian) N, N bytes of JSON, then the data of all tensors without gaps:
 *
 *   {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
 *
 * data_offsets: [begin, end) in bytes from the end of the JSON. Row-major, little-endian, no padding between
 * tensors. */
#ifndef TT_CHECKPOINT_SAFETENSORS_H
#define TT_CHECKPOINT_SAFETENSORS_H

#include "base/text/plain_text.h"

#include <jansson.h>
#include <tutti/checkpoint.h>

/* The reference reader's limit on N. */
#define TT__SAFETENSORS_MAX_HEADER UINT64_C(100000000)

#define TT__SAFETENSORS_METADATA "__metadata__"

/* What becomes of an element type of the format when it is read. */
typedef enum tt__safetensors_reading {
    TT__SAFETENSORS_NOT, /* there is no type for it */
    TT__SAFETENSORS_AS_IT_IS,
    TT__SAFETENSORS_UNSIGNED /* integers without a sign: in a type with one that holds them all, U64 in I64 if it can */
} tt__safetensors_reading;

/* An element type of the format: F4 has 4 bits, F6 6. */
typedef struct tt__safetensors_dtype {
    const char *name;
    unsigned bits;
    tt__safetensors_reading reading;
    tt_dtype dtype; /* of the tensor that is made */
} tt__safetensors_dtype;

/* Find a type of the format by its name; NULL if there is none. */
const tt__safetensors_dtype *tt__safetensors_dtype_find(const char *name);

/* Return the format's name of one of our types. */
const char *tt__safetensors_dtype_name(tt_dtype dtype);

struct tt_safetensors {
    json_t *header; /* owns the names and the metadata */
    size_t count, skipped_count;
    const char **names, **skipped;
    tt_tensor **tensors;
    tt_named_tensors list;  /* of them, for the caller */
    tt_safetensors **parts; /* of an index: its files, which own names and tensors */
    size_t part_count;
};

/* Does the path name an index of several files, "model.safetensors.index.json"? */
bool tt__safetensors_is_index(const char *path);

/* Read one file, or all files of an index. */
tt_status tt__safetensors_read_file(tt_safetensors **out, const char *path, bool skip_unsupported);
tt_status tt__safetensors_read_index(tt_safetensors **out, const char *path, bool skip_unsupported);

#endif
