/* The safetensors format: a u64 (little-endian) N, N bytes of JSON, then the data of all tensors without gaps:
 *
 *   {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
 *
 * data_offsets: [begin, end) in bytes from the end of the JSON. Row-major, little-endian, no padding between
 * tensors. */
#ifndef TT_CHECKPOINT_SAFETENSORS_H
#define TT_CHECKPOINT_SAFETENSORS_H

#include <jansson.h>
#include <tutti/checkpoint.h>

/* The reference reader's limit on N. */
#define TT__SAFETENSORS_MAX_HEADER UINT64_C(100000000)

#define TT__SAFETENSORS_METADATA "__metadata__"

/* An element type of the format: F4 has 4 bits, F6 6. */
typedef struct tt__safetensors_dtype {
    const char *name;
    unsigned bits;
    bool supported; /* `dtype` is valid */
    tt_dtype dtype;
} tt__safetensors_dtype;

/* Find a type of the format by its name; NULL if there is none. */
const tt__safetensors_dtype *tt__safetensors_dtype_find(const char *name);

/* Return the format's name of one of our types. */
const char *tt__safetensors_dtype_name(tt_dtype dtype);

struct tt_safetensors {
    json_t *header; /* owns the names and the metadata */
    size_t count;
    const char **names;
    tt_tensor **tensors;
    tt_named_tensors list; /* of them, for the caller */
};

/* Make `text` fit for an error message: at most 100 bytes, control characters replaced; names come from files that
 * anyone may have written. */
typedef struct tt__printable {
    char text[104];
} tt__printable;
tt__printable tt__safetensors_printable(const char *text);

#endif
