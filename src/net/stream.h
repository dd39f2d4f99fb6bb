/* A stream of bytes over a connected socket, plain, sealed (seal.h) or encrypted with TLS 1.3. OpenSSL's TLS is not
 * touched unless tt__tls_load() finds that it is asked for.
 *
 * TT_TLS=1 asks for it. Each side knows the other by one of these:
 *
 *   the job secret       by default: its key is TLS's external PSK (RFC 8446, section 4.2.11), with an ephemeral key
 *                        exchange. No certificates are used.
 *   certificates         if TT_TLS_CERT, TT_TLS_KEY and TT_TLS_CA are set (PEM files): each side shows its own and
 *                        checks that the other's comes from that CA. The CA must be the job's own, because every
 *                        holder of a certificate from it is trusted: names in certificates are ignored.
 *
 * A stream is not locked. The socket may be blocking or not: the calls that never wait don't depend on it. */
#ifndef TT_NET_STREAM_H
#define TT_NET_STREAM_H

#include "net/secure/handshake.h"
#include "net/secure/tls.h"

typedef struct tt__stream {
    int fd;                /* -1: closed */
    void *ssl;             /* NULL: not encrypted */
    struct tt__seal *seal; /* NULL: not sealed */
} tt__stream;

/* Open a stream over `fd`, which is the stream's from now on, also after a failure. tls: borrowed; NULL = plain.
 * `server`: this side listened. Moves no bytes. */
tt_status tt__stream_open(tt__stream *stream, int fd, tt__tls *tls, bool server);

/* Seal what is written and read from now on (seal.h), after a handshake that has proved a secret. */
tt_status tt__stream_seal(tt__stream *stream, const tt__handshake *handshake);

/* Close a stream. NULL and a closed stream are allowed. */
void tt__stream_close(tt__stream *stream);

/* Do TLS's own handshake, before anything else; a plain stream has none and is done. */
tt__io tt__stream_begin(tt__stream *stream);

/* Read up to `size` bytes; *got > 0 if done. */
tt__io tt__stream_read(tt__stream *stream, void *data, size_t size, size_t *got);

/* From now on a read that moved nothing keeps the memory that it was given: a sealed stream may have put bytes there
 * that are not checked yet. The next read must be given the same memory, unless tt__stream_let_go() has taken it back.
 * Without this, bytes of records that arrive in parts are copied two more times. */
void tt__stream_borrow(tt__stream *stream);
void tt__stream_let_go(tt__stream *stream);

/* Write what fits of `n` pieces; *put > 0 if done, perhaps less than all. An encrypted or sealed stream may still hold
 * some of it: call tt__stream_flush() until nothing is unsent. */
tt__io tt__stream_write(tt__stream *stream, const struct iovec *pieces, int n, size_t *put);

/* Send more of what the stream holds. TT__IO_DONE: nothing is unsent; TT__IO_WANT_WRITE: try again when the socket is
 * writable. */
tt__io tt__stream_flush(tt__stream *stream);
bool tt__stream_unsent(const tt__stream *stream);

/* Does the stream hold received bytes that were not read? poll() does not see them: before waiting for the socket, read
 * until TT__IO_WANT_READ, or until nothing is pending. */
bool tt__stream_pending(const tt__stream *stream);

/* While on, reads take nothing more from the socket: only what the stream holds is read. */
void tt__stream_hold(tt__stream *stream, bool on);

/* Get a number that both ends of this encrypted connection have and no other connection has (RFC 9266); zeros if
 * plain. */
tt_status tt__stream_channel(const tt__stream *stream, uint8_t channel[TT__MAC_SIZE]);

/* ---- calls that wait until the deadline. Errors: TT_ERR_TIMEOUT, and those of TT__IO_FAILED (io.h); the other side's
 * end is TT_ERR_NET, unless told otherwise ---- */

/* Do TLS's handshake, then ours (role->channel is filled in), and seal the stream if the role says so. *peer: the
 * other side's rank; `job`: the server's. Both may be NULL. */
tt_status tt__stream_handshake(tt__stream *stream, const tt__handshake_role *role, int64_t deadline_ms, int *peer,
                               uint8_t job[TT__JOB_SIZE]);

/* Read what is there, waiting for the first byte; *got = 0 at the end. */
tt_status tt__stream_read_some(tt__stream *stream, void *data, size_t size, int64_t deadline_ms, size_t *got);
tt_status tt__stream_read_full(tt__stream *stream, void *data, size_t size, int64_t deadline_ms);
tt_status tt__stream_write_full(tt__stream *stream, const void *data, size_t size, int64_t deadline_ms);

#endif
