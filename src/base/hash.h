/* Hashes, and numbers by name. FNV-1a is fast, and anybody can find texts that collide. Where strangers choose what is
 * hashed (keys of the store, names in files), SipHash is used: without its key nobody can find them. */
#ifndef TT_BASE_HASH_H
#define TT_BASE_HASH_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- FNV-1a (Fowler, Noll, Vo), 64 bits: begin with TT__FNV, and hand each call the hash so far ---- */

#define TT__FNV UINT64_C(14695981039346656037)

/* Add a number, as one piece. */
static inline uint64_t tt__fnv_number(uint64_t hash, uint64_t number) {
    return (hash ^ number) * UINT64_C(1099511628211);
}

static inline uint64_t tt__fnv_bytes(uint64_t hash, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        hash = tt__fnv_number(hash, ((const unsigned char *)bytes)[i]);
    return hash;
}

/* Add the numbers of 64 bits in `size` bytes: eight times as fast as tt__fnv_bytes(). */
static inline uint64_t tt__fnv_numbers(uint64_t hash, const void *numbers, size_t size) {
    uint64_t number;
    for (size_t at = 0; at + sizeof number <= size; at += sizeof number) {
        memcpy(&number, (const char *)numbers + at, sizeof number);
        hash = tt__fnv_number(hash, number);
    }
    return hash;
}

/* Add a text and its final 0, which separates it from the next one. */
static inline uint64_t tt__fnv_text(uint64_t hash, const char *text) {
    return tt__fnv_bytes(hash, text, strlen(text) + 1);
}

/* ---- SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF") ---- */

uint64_t tt__siphash13(const uint64_t key[2], const void *data, size_t size);

/* The same with a random key of this process. Thread-safe. */
TT__EXPORT uint64_t tt__siphash_own(const void *data, size_t size);

/* The same over several pieces, as if they were one. */
typedef struct tt__siphash {
    uint64_t v[4], word; /* word: the last bytes, fewer than eight */
    size_t size;         /* of all pieces so far */
} tt__siphash;

void tt__siphash_begin(tt__siphash *hash, const uint64_t key[2]);
void tt__siphash_add(tt__siphash *hash, const void *data, size_t size);
uint64_t tt__siphash_end(tt__siphash *hash);

/* ---- a map from names to numbers; zeroed = empty ---- */

typedef struct tt__name_map {
    struct tt__name_entry *table; /* NULL: empty */
    size_t room, count;           /* room: a power of two */
} tt__name_map;

/* Make room for `count` names in all. False: no memory, nothing changed. */
TT__EXPORT bool tt__name_map_reserve(tt__name_map *map, size_t count);

/* Put in a name, which is borrowed, and for which there is room. A name that is there keeps its number. */
TT__EXPORT void tt__name_map_put(tt__name_map *map, const char *name, int64_t number);

/* Return the number of the name that consists of `head` and `rest`, or -1. */
TT__EXPORT int64_t tt__name_map_get(const tt__name_map *map, const char *head, const char *rest);

TT__EXPORT void tt__name_map_free(tt__name_map *map);

#endif
