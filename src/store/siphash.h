/* SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF"): a keyed hash that strangers can't make
 * collide. */
#ifndef TT_STORE_SIPHASH_H
#define TT_STORE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t tt__siphash13(const uint64_t key[2], const void *data, size_t size);

#endif
