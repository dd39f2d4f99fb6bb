/* Test vectors: JSON files of tests/vectors. */
#ifndef TT_TESTS_UNIT_VECTORS_H
#define TT_TESTS_UNIT_VECTORS_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* NULL, with the reason on stderr, if it can't be read. Release with json_decref(). */
static inline json_t *vectors_load(const char *name) {
    char path[4096];
    const char *source = getenv("TT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/vectors/%s", source ? source : ".", name);
    json_error_t error;
    json_t *vectors = json_load_file(path, 0, &error);
    if (!vectors)
        fprintf(stderr, "%s: %s\n", path, error.text);
    return vectors;
}

static inline double vectors_number(const json_t *array, size_t i) {
    return json_number_value(json_array_get(array, i));
}

static inline double vectors_member(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

#endif
