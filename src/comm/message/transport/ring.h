/* Byte rings in shared memory: how messages reach a rank of the same host.
 *
 * A ring carries bytes from its owner to one peer. It lies in its owner's memory and is made at the first message. Only
 * its owner writes the data and `tail`, only its reader `head`. Both only grow, and each side checks the other's: a
 * peer that crashes at any moment, or overwrites its memory, ends the link and nothing else. */
#ifndef TT_COMM_MESSAGE_RING_H
#define TT_COMM_MESSAGE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { TT__RING_BYTES = 256 << 10, TT__RING_PEERS = 64 };

/* Part of every rank's control page: where its rings lie. */
typedef struct tt__ring_board {
    _Alignas(128) _Atomic uint64_t
        made; /* bit i, set by rank number i of the host: it has made a ring to the owner of this board */
    _Alignas(128) _Atomic uint64_t
        at[TT__RING_PEERS]; /* offset in the owner's memory of its ring to rank number i; 0: none */
} tt__ring_board;

typedef struct tt__ring {
    _Alignas(128) _Atomic uint64_t tail; /* bytes written so far */
    _Alignas(128) _Atomic uint64_t head; /* bytes read so far */
    _Alignas(128) unsigned char data[TT__RING_BYTES];
} tt__ring;

#endif
