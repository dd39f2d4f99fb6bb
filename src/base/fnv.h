/* FNV-1a (Fowler, Noll, Vo), 64 bits: compares ranks' texts and spreads names that nobody chooses. Where a stranger may
 * choose them, take siphash.h: anybody can find texts that meet here. */
#ifndef TT_BASE_FNV_H
#define TT_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of nothing. */
#define TT__FNV UINT64_C(14695981039346656037)

/* Go on with a hash over a number, taken as one piece. */
static inline uint64_t tt__fnv_number(uint64_t hash, uint64_t number) {
    return (hash ^ number) * UINT64_C(1099511628211);
}

/* ... over bytes. */
static inline uint64_t tt__fnv_bytes(uint64_t hash, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        hash = tt__fnv_number(hash, ((const unsigned char *)bytes)[i]);
    return hash;
}

/* ... over numbers of 64 bits, which lie in `size` bytes: eight times as fast. */
static inline uint64_t tt__fnv_numbers(uint64_t hash, const void *numbers, size_t size) {
    uint64_t number;
    for (size_t at = 0; at + sizeof number <= size; at += sizeof number) {
        memcpy(&number, (const char *)numbers + at, sizeof number);
        hash = tt__fnv_number(hash, number);
    }
    return hash;
}

/* ... over a text with its final 0, which separates it from the next one. */
static inline uint64_t tt__fnv_text(uint64_t hash, const char *text) {
    return tt__fnv_bytes(hash, text, strlen(text) + 1);
}

#endif
