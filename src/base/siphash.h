/* SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF"): a keyed hash that strangers can't make
 * collide. */
#ifndef TT_BASE_SIPHASH_H
#define TT_BASE_SIPHASH_H

#include "base/export.h"

#include <stddef.h>
#include <stdint.h>

uint64_t tt__siphash13(const uint64_t key[2], const void *data, size_t size);

/* The same with a key that this process has drawn. Thread-safe. */
TT__EXPORT uint64_t tt__siphash_own(const void *data, size_t size);

/* The same of several pieces, as if they were one. */
typedef struct tt__siphash {
    uint64_t v[4], word; /* word: the bytes that don't make eight yet */
    size_t size;         /* of all so far */
} tt__siphash;

void tt__siphash_begin(tt__siphash *hash, const uint64_t key[2]);
void tt__siphash_begin_own(tt__siphash *hash);
void tt__siphash_add(tt__siphash *hash, const void *data, size_t size);
uint64_t tt__siphash_end(tt__siphash *hash);

#endif
