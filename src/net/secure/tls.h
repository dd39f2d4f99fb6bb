/* TLS 1.3 by OpenSSL, for stream.c alone. A connection (an SSL, void here) reads and writes its socket itself, never
 * waits, never raises SIGPIPE. */
#ifndef TT_NET_TLS_H
#define TT_NET_TLS_H

#include "net/stream.h"

/* Make a connection over `fd`; NULL when memory is out. */
void *tt__tls_connection(tt__tls *tls, int fd, bool server);
void tt__tls_connection_free(void *ssl);

/* Like the calls of streams. */
tt__io tt__tls_begin(void *ssl);
tt__io tt__tls_read(void *ssl, void *data, size_t size, size_t *got);
tt__io tt__tls_write(void *ssl, const struct iovec *pieces, int n, size_t *put);
tt__io tt__tls_flush(void *ssl);
bool tt__tls_unsent(const void *ssl);
bool tt__tls_pending(const void *ssl);
void tt__tls_hold(void *ssl, bool on);
bool tt__tls_channel(void *ssl, uint8_t channel[TT__MAC_SIZE]);

#endif
