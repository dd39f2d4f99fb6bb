/* Bytes as hexadecimal digits, as vectors have them. */
#ifndef TT_TESTS_UNIT_HEX_H
#define TT_TESTS_UNIT_HEX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The caller's to free. */
static inline uint8_t *hex_bytes(const char *digits, size_t *size) {
    assert_non_null(digits);
    *size = strlen(digits) / 2;
    uint8_t *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < *size; i++)
        assert_int_equal(sscanf(digits + 2 * i, "%2hhx", &bytes[i]), 1);
    return bytes;
}

static inline void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline void write_hex(const char *path, const char *digits) {
    size_t size;
    uint8_t *bytes = hex_bytes(digits, &size);
    write_bytes(path, bytes, size);
    free(bytes);
}

#endif
