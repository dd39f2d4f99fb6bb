/* safetensors files in memory. */
#ifndef TESTS_UNIT_SAFETENSORS_FILE_H
#define TESTS_UNIT_SAFETENSORS_FILE_H

#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>

/* The header of one tensor, w. */
#define W(dtype, shape, begin, end) \
    "{\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}}"

/* A file in memory: header text, then `data_size` bytes 0, 1, 2, ... The caller's to free. */
static inline unsigned char *make_file(const char *header, size_t data_size, size_t *size) {
    uint64_t length = strlen(header);
    *size = 8 + length + data_size;
    unsigned char *bytes = malloc(*size);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return bytes;
}

static inline tt_status parse(const char *header, size_t data_size, tt_safetensors **file) {
    size_t size;
    unsigned char *bytes = make_file(header, data_size, &size);
    tt_status status = tt_safetensors_parse(file, bytes, size, "x.safetensors");
    free(bytes);
    return status;
}

#endif
