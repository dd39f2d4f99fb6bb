/* HMAC-SHA-256 (RFC 2104) and keys derived with it (HKDF, RFC 5869). */
#ifndef TT_NET_MAC_H
#define TT_NET_MAC_H

#include "base/bytes.h"

enum { TT__MAC_SIZE = 32 };

/* Compute the MAC of `n` spans, one after the other. */
void tt__mac(uint8_t mac[TT__MAC_SIZE], tt__span key, const tt__span *spans, size_t n);

/* Derive the key for one purpose from a shared secret: HKDF-SHA-256. */
void tt__mac_derive(uint8_t key[TT__MAC_SIZE], tt__span secret, tt__span salt, tt__span purpose);

/* Are they equal? The time taken does not depend on the answer. */
bool tt__mac_equal(const uint8_t a[TT__MAC_SIZE], const uint8_t b[TT__MAC_SIZE]);

#endif
