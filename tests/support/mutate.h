/* Inputs of the fuzzers' corpora, changed at random, for tests that send them over sockets. */
#ifndef TESTS_SUPPORT_MUTATE_H
#define TESTS_SUPPORT_MUTATE_H

#include "support/storm.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MUTATE_INPUTS = 64, MUTATE_MAX = 64 << 10 };

typedef struct corpus {
    int n;
    size_t size[MUTATE_INPUTS];
    unsigned char *input[MUTATE_INPUTS];
} corpus;

/* Load tests/fuzz/corpus/NAME. */
static inline void corpus_load(corpus *corpus, const char *name) {
    char folder[2048], path[4096];
    const char *source = getenv("TT_SOURCE");
    *corpus = (struct corpus){0};
    if (!source)
        fail_msg("TT_SOURCE is not set: run this through ctest");
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", source, name);
    DIR *files = opendir(folder);
    assert_non_null(files);
    for (struct dirent *entry; corpus->n < MUTATE_INPUTS && (entry = readdir(files));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        unsigned char *bytes = malloc(MUTATE_MAX);
        assert_non_null(bytes);
        corpus->size[corpus->n] = fread(bytes, 1, MUTATE_MAX, file);
        corpus->input[corpus->n++] = bytes;
        fclose(file);
    }
    closedir(files);
    assert_true(corpus->n > 0);
}

static inline void corpus_free(corpus *corpus) {
    while (corpus->n)
        free(corpus->input[--corpus->n]);
}

/* Change something of `size` bytes, of which there is room for MUTATE_MAX. Returns the new size. */
static inline size_t mutate_once(uint64_t *state, unsigned char *bytes, size_t size) {
    static const unsigned char striking[] = {0, 1, 0x7f, 0x80, 0xf5, 0xff};
    size_t at = size ? storm_below(state, size) : 0, n = size ? 1 + storm_below(state, size - at) : 0;
    switch (size ? storm_below(state, 6) : 5) {
    case 0:
        bytes[at] ^= (unsigned char)(1u << storm_below(state, 8));
        return size;
    case 1:
        bytes[at] = striking[storm_below(state, sizeof striking)];
        return size;
    case 2: /* a 32-bit number, of either order */
        for (size_t i = at; i < at + 4 && i < size; i++)
            bytes[i] = striking[storm_below(state, 6)];
        return size;
    case 3: /* cut out */
        memmove(bytes + at, bytes + at + n, size - at - n);
        return size - n;
    case 4: /* repeat n bytes */
        n = n < MUTATE_MAX - size ? n : MUTATE_MAX - size;
        memmove(bytes + at + n, bytes + at, size - at);
        return size + n;
    default:
        for (n = 1 + storm_below(state, 16); n && size < MUTATE_MAX; n--)
            bytes[size++] = (unsigned char)storm_draw(state);
        return size;
    }
}

/* Draw an input without its first `skip` bytes, and change it, except one time in four. `bytes` has room for
 * MUTATE_MAX. */
static inline size_t corpus_draw(const corpus *corpus, uint64_t *state, size_t skip, unsigned char *bytes) {
    size_t which = storm_below(state, (size_t)corpus->n), size = corpus->size[which];
    skip = skip < size ? skip : size;
    size -= skip;
    memcpy(bytes, corpus->input[which] + skip, size);
    for (size_t changes = storm_below(state, 4); changes; changes--)
        size = mutate_once(state, bytes, size);
    return size;
}

#endif
