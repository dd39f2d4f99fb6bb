/* Sealed streams: bytes travel unencrypted, in records with a tag each (AES-256-GMAC, by OpenSSL) that only the two
 * ends of this connection can make. Readers get nothing of a record before its tag was checked. A record that was
 * changed, repeated, left out or moved ends the stream. Eavesdroppers can read everything; only TLS prevents that.
 *
 *   record: u32 size (little-endian, 1 to TT__SEAL_PIECE), the bytes, 16 bytes of tag over size and bytes
 *
 * Each direction has a key of its own, derived from the job secret and the whole handshake (handshake.h), and numbers
 * its records from 0; the number is the nonce. After TT__SEAL_RECORDS records the next key is derived from the last, so
 * no key is used twice with a number, nor for long. Keys are in memory that core dumps leave out, and are overwritten
 * when they are replaced; OpenSSL's own tables of the present key are elsewhere. */
#ifndef TT_NET_SEAL_H
#define TT_NET_SEAL_H

#include "net/secure/io.h"
#include "net/secure/mac.h"

#include <tutti/base.h>

#include <sys/uio.h>

enum { TT__SEAL_PIECE = 128 << 10, TT__SEAL_TAG = 16, TT__SEAL_HEAD = 4, TT__SEAL_RECORDS = 1 << 20 };

/* Keys of the two directions; their owner wipes them. */
typedef struct tt__seal_keys {
    uint8_t send[TT__MAC_SIZE], receive[TT__MAC_SIZE];
} tt__seal_keys;

typedef struct tt__seal tt__seal;

/* Make a seal, which copies the keys. After a failure *out is NULL: TT_ERR_MEMORY; TT_ERR_SYSTEM OpenSSL has no
 * AES-GCM. */
tt_status tt__seal_new(tt__seal **out, const tt__seal_keys *keys);
void tt__seal_free(tt__seal *seal);

/* For tests: derive the next key after this many records, in both directions. */
void tt__seal_rekey_every(tt__seal *seal, uint64_t records);

/* As the calls of streams (stream.h), over the socket `fd`. TT__IO_FAILED: also TT_ERR_AUTH, a record's tag is
 * wrong. */
tt__io tt__seal_read(tt__seal *seal, int fd, void *data, size_t size, size_t *got);
tt__io tt__seal_write(tt__seal *seal, int fd, const struct iovec *pieces, int n, size_t *put);
tt__io tt__seal_flush(tt__seal *seal, int fd);
void tt__seal_borrow(tt__seal *seal);
void tt__seal_let_go(tt__seal *seal);
bool tt__seal_unsent(const tt__seal *seal);
bool tt__seal_pending(const tt__seal *seal);
void tt__seal_hold(tt__seal *seal, bool on);

#endif
