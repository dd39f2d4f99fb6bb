/* TLS 1.3 by OpenSSL: its settings, and connections, which only stream.c uses. A connection (OpenSSL's SSL, here void)
 * reads and writes its socket itself, never waits, and never raises SIGPIPE. */
#ifndef TT_NET_TLS_H
#define TT_NET_TLS_H

#include "net/secure/io.h"
#include "net/secure/secret.h"

#include <sys/uio.h>

/* Settings and keys for encrypted streams. They must outlive these streams. */
typedef struct tt__tls tt__tls;

/* Load settings from the environment. *out = NULL: no encryption is asked for. Errors: TT_ERR_INVALID neither secret
 * nor certificates, or not all three files; TT_ERR_IO a file can't be used; TT_ERR_MEMORY. */
tt_status tt__tls_load(tt__tls **out, const tt__secret *secret);
void tt__tls_free(tt__tls *tls);

/* Make a connection over `fd`; NULL: no memory. */
void *tt__tls_connection(tt__tls *tls, int fd, bool server);
void tt__tls_connection_free(void *ssl);

/* As the calls of streams (stream.h). */
tt__io tt__tls_begin(void *ssl);
tt__io tt__tls_read(void *ssl, void *data, size_t size, size_t *got);
tt__io tt__tls_write(void *ssl, const struct iovec *pieces, int n, size_t *put);
tt__io tt__tls_flush(void *ssl);
bool tt__tls_unsent(const void *ssl);
bool tt__tls_pending(const void *ssl);
void tt__tls_hold(void *ssl, bool on);
bool tt__tls_channel(void *ssl, uint8_t channel[TT__MAC_SIZE]);

#endif
