/* Both kinds of credentials use TLS 1.3 with an ephemeral key exchange, no session tickets, no early data. */
#include "net/secure/tls.h"

#include "base/error.h"
#include "base/files/planted.h"
#include "net/net.h"
#include "net/secure/secret.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct tt__tls {
    SSL_CTX *context;
    BIO_METHOD *socket;
    bool by_secret;
    uint8_t key[TT__MAC_SIZE];
};

/* ---- the sockets that OpenSSL uses. Its own raise SIGPIPE, and make two calls for each record of 16 KiB
 *
 * What is encrypted is collected, several records at a time, and sent by one call; what the socket does not take waits
 * here. OpenSSL reads ahead as much. Only TLS's handshake writes straight to the socket, and reads one record at a
 * time: strangers who never finish theirs get no large buffer. */

enum {
    RECORD = 16 * 1024, /* the most that a record holds */
    AROUND = 64,        /* more than a record adds to that */
    BURST = 8 * RECORD, /* what is encrypted or read at a time */
    BURST_SIZE = BURST + 8 * AROUND
};

typedef struct wire {
    int fd;
    bool collects, held;
    uint8_t *out; /* [at, size): unsent; NULL: nothing is */
    size_t at, size, room;
} wire;

static wire *ssl_wire(const SSL *ssl) { return BIO_get_data(SSL_get_wbio(ssl)); }

/* Make room for `size` bytes more. */
static bool wire_reserve(wire *w, size_t size) {
    if (w->size + size <= w->room)
        return true;
    uint8_t *more = realloc(w->out, w->size + size);
    if (more) {
        w->out = more;
        w->room = w->size + size;
    }
    return more;
}

static void drop_sent(wire *w) {
    free(w->out);
    w->out = NULL;
    w->at = w->size = w->room = 0;
}

static int socket_write(BIO *bio, const char *data, int size) {
    wire *w = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (w->collects) {
        if (!wire_reserve(w, (size_t)size)) {
            errno = ENOMEM;
            return -1;
        }
        memcpy(w->out + w->size, data, (size_t)size);
        w->size += (size_t)size;
        return size;
    }
    ssize_t n = send(w->fd, data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && tt__net_would_block(errno))
        BIO_set_retry_write(bio);
    return (int)n;
}

static int socket_read(BIO *bio, char *data, int size) {
    const wire *w = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (w->held) {
        BIO_set_retry_read(bio);
        return -1;
    }
    ssize_t n = recv(w->fd, data, (size_t)size, MSG_DONTWAIT);
    if (n == 0)
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    else if (n < 0 && tt__net_would_block(errno))
        BIO_set_retry_read(bio);
    return (int)n;
}

static int socket_free(BIO *bio) {
    wire *w = BIO_get_data(bio);
    if (w)
        free(w->out);
    free(w);
    return 1;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    (void)number;
    (void)pointer;
    if (command == BIO_CTRL_EOF)
        return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    return command == BIO_CTRL_FLUSH;
}

static bool make_socket_method(tt__tls *tls) {
    tls->socket = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
    return tls->socket && BIO_meth_set_write(tls->socket, socket_write) &&
           BIO_meth_set_read(tls->socket, socket_read) && BIO_meth_set_ctrl(tls->socket, socket_control) &&
           BIO_meth_set_destroy(tls->socket, socket_free);
}

/* ---- by secret */

/* The cipher says which hash the key is for (RFC 8446: SHA-256 where nothing else is agreed). */
static const unsigned char psk_cipher[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
static const unsigned char psk_name[] = "tutti job 1";
enum { PSK_NAME_SIZE = sizeof psk_name - 1 };

static SSL_SESSION *make_session(SSL *ssl) {
    const tt__tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, psk_cipher);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, tls->key, sizeof tls->key) &&
        SSL_SESSION_set1_id_context(session, psk_name, PSK_NAME_SIZE) && SSL_SESSION_set_cipher(session, cipher) &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int offer_secret(SSL *ssl, const EVP_MD *hash, const unsigned char **name, size_t *name_size,
                        SSL_SESSION **session) {
    (void)hash; /* only one cipher is offered, so it is SHA-256 */
    *name = psk_name;
    *name_size = PSK_NAME_SIZE;
    return (*session = make_session(ssl)) != NULL;
}

static int find_secret(SSL *ssl, const unsigned char *name, size_t name_size, SSL_SESSION **session) {
    *session = NULL; /* no error here, but the handshake then fails, as there is no certificate */
    return name_size != PSK_NAME_SIZE || memcmp(name, psk_name, name_size) != 0 ||
           (*session = make_session(ssl)) != NULL;
}

static tt_status use_secret(tt__tls *tls, const tt__secret *secret) {
    memcpy(tls->key, secret->tls_key, sizeof tls->key);
    SSL_CTX_set_psk_use_session_callback(tls->context, offer_secret);
    SSL_CTX_set_psk_find_session_callback(tls->context, find_secret);
    /* The context knows no CA, so a certificate that is shown instead of the secret is refused. */
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    return SSL_CTX_set_ciphersuites(tls->context, "TLS_AES_128_GCM_SHA256")
               ? TT_OK
               : tt__fail(TT_ERR_UNSUPPORTED, "TLS: this OpenSSL has no TLS_AES_128_GCM_SHA256");
}

/* ---- by certificates */

static const char *openssl_reason(void) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    return reason ? reason : "no reason given";
}

/* Return what failed first, in the system or in OpenSSL; errors that follow from it come later. */
static const char *first_reason(void) {
    unsigned long code = ERR_peek_error();
    return ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : openssl_reason();
}

static tt_status use_certificates(tt__tls *tls, const char *certificate, const char *key, const char *ca) {
    const struct {
        const char *variable, *path;
    } files[] = {{"TT_TLS_CERT", certificate}, {"TT_TLS_KEY", key}, {"TT_TLS_CA", ca}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) /* OpenSSL would wait for a FIFO */
        if (tt__check_regular(files[i].path))
            return tt__fail_prefix("TLS: %s", files[i].variable);
    const char *variable = "TT_TLS_CERT", *path = certificate;
    bool good = SSL_CTX_use_certificate_chain_file(tls->context, certificate) == 1;
    if (good) {
        variable = "TT_TLS_KEY";
        path = key;
        good = SSL_CTX_use_PrivateKey_file(tls->context, key, SSL_FILETYPE_PEM) == 1;
    }
    if (good) {
        variable = "TT_TLS_CA";
        path = ca;
        good = SSL_CTX_load_verify_locations(tls->context, ca, NULL) == 1;
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return good ? TT_OK : tt__fail(TT_ERR_IO, "TLS: %s=%s can't be used: %s", variable, path, first_reason());
}

/* ---- settings */

static bool is_given(const char *value) { return value && *value; }

static tt_status choose_credentials(tt__tls *tls, const tt__secret *secret) {
    const char *certificate = secure_getenv("TT_TLS_CERT"), *key = secure_getenv("TT_TLS_KEY"),
               *ca = secure_getenv("TT_TLS_CA");
    int files = is_given(certificate) + is_given(key) + is_given(ca);
    if (files == 3)
        return use_certificates(tls, certificate, key, ca);
    if (files)
        return tt__fail(TT_ERR_INVALID,
                        "TLS: expected all of TT_TLS_CERT, TT_TLS_KEY and TT_TLS_CA or none, but %s "
                        "is not set",
                        !is_given(certificate) ? "TT_TLS_CERT"
                        : !is_given(key)       ? "TT_TLS_KEY"
                                               : "TT_TLS_CA");
    if (!secret || !secret->set)
        return tt__fail(TT_ERR_INVALID, "TT_TLS=1 needs a job secret (TT_SECRET or TT_SECRET_FILE) or certificates "
                                        "(TT_TLS_CERT, TT_TLS_KEY, TT_TLS_CA)");
    tls->by_secret = true;
    return use_secret(tls, secret);
}

static tt_status tls_set_up(tt__tls *tls, const tt__secret *secret) {
    tls->context = SSL_CTX_new(TLS_method());
    if (!tls->context || !make_socket_method(tls))
        return tt__fail(TT_ERR_MEMORY, "TLS: OpenSSL can't be set up: %s", openssl_reason());
    SSL_CTX_set_app_data(tls->context, tls);
    SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION);
    SSL_CTX_set_mode(tls->context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(tls->context, 1);
    /* Our protocols have ends of their own, so an end without TLS's goodbye is an end like any other. */
    SSL_CTX_set_options(tls->context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(tls->context, 0);
    SSL_CTX_set_session_id_context(tls->context, psk_name, PSK_NAME_SIZE);
    return choose_credentials(tls, secret);
}

/* Warn a user who names certificates but does not ask for encryption. */
static void warn_of_plain(void) {
    static _Atomic bool warned;
    if ((is_given(secure_getenv("TT_TLS_CERT")) || is_given(secure_getenv("TT_TLS_KEY")) ||
         is_given(secure_getenv("TT_TLS_CA"))) &&
        !atomic_exchange(&warned, true))
        tt__log(TT_LOG_WARNING,
                "nothing is encrypted: certificates are named (TT_TLS_CERT, TT_TLS_KEY, TT_TLS_CA), but "
                "TT_TLS=1 is not set (TT_TLS=0: no warning)");
}

tt_status tt__tls_load(tt__tls **out, const tt__secret *secret) {
    tt__wire wire;
    *out = NULL;
    TT__TRY(tt__wire_asked(&wire));
    if (wire != TT__WIRE_TLS) {
        if (!is_given(getenv("TT_TLS")))
            warn_of_plain();
        return TT_OK;
    }
    tt__tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return tt__fail(TT_ERR_MEMORY, "TLS: out of memory");
    ERR_clear_error();
    tt_status status = tls_set_up(tls, secret);
    if (status)
        tt__tls_free(tls);
    else
        *out = tls;
    return status;
}

void tt__tls_free(tt__tls *tls) {
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->socket);
    explicit_bzero(tls->key, sizeof tls->key);
    free(tls);
}

/* ---- connections */

void *tt__tls_connection(tt__tls *tls, int fd, bool server) {
    ERR_clear_error();
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = ssl ? BIO_new(tls->socket) : NULL;
    wire *w = bio ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        BIO_free(bio);
        SSL_free(ssl);
        return NULL;
    }
    w->fd = fd;
    BIO_set_data(bio, w);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

void tt__tls_connection_free(void *ssl) { SSL_free(ssl); }

static tt__io fail_tls(SSL *ssl, tt_status status, const char *reason) {
    const tt__tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    tt__fail(status, "TLS failed (%s). Both sides need TT_TLS=1 and %s", reason,
             tls->by_secret ? "the same TT_SECRET or TT_SECRET_FILE"
                            : "certificates of one CA (TT_TLS_CERT, TT_TLS_KEY, TT_TLS_CA)");
    return TT__IO_FAILED;
}

static const char *reason_of(SSL *ssl) {
    if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return X509_verify_cert_error_string(SSL_get_verify_result(ssl));
    return openssl_reason();
}

static tt__io tls_result(SSL *ssl, int result, int errnum) {
    switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_NONE:
        return TT__IO_DONE;
    case SSL_ERROR_WANT_READ:
        return TT__IO_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return TT__IO_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return TT__IO_END;
    case SSL_ERROR_SYSCALL:
        if (errnum)
            tt__fail_errno(TT_ERR_NET, errnum, "the encrypted connection broke");
        return errnum ? TT__IO_FAILED : TT__IO_END;
    default:
        return fail_tls(ssl, TT_ERR_AUTH, reason_of(ssl));
    }
}

tt__io tt__tls_begin(void *ssl) {
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(ssl);
    int errnum = errno;
    tt__io io = tls_result(ssl, result, errnum);
    if (io == TT__IO_END)
        return fail_tls(ssl, TT_ERR_AUTH, "the other side closed the connection");
    /* A side that does not speak TLS may reset the connection, too. But so does one that is just ending, and another
     * try may find its successor. */
    if (io == TT__IO_FAILED && errnum == ECONNRESET)
        return fail_tls(ssl, TT_ERR_NET, "the other side reset the connection");
    ssl_wire(ssl)->collects = io == TT__IO_DONE;
    if (io == TT__IO_DONE) /* for the next buffer: an empty one is released */
        SSL_set_default_read_buffer_len(ssl, BURST_SIZE);
    return io;
}

tt__io tt__tls_read(void *ssl, void *data, size_t size, size_t *got) {
    ERR_clear_error();
    errno = 0;
    int result = SSL_read_ex(ssl, data, size, got);
    return tls_result(ssl, result, errno);
}

tt__io tt__tls_flush(void *ssl) {
    wire *w = ssl_wire(ssl);
    while (w->at < w->size) {
        ssize_t n = send(w->fd, w->out + w->at, w->size - w->at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && tt__net_would_block(errno))
            return TT__IO_WANT_WRITE;
        if (n < 0) {
            tt__fail_errno(TT_ERR_NET, errno, "writing to the connection");
            return TT__IO_FAILED;
        }
        w->at += (size_t)n;
    }
    drop_sent(w);
    return TT__IO_DONE;
}

/* Encrypt the next record of the pieces, from `*at` of the first on. Small pieces go into one record together. Returns
 * how many bytes it holds. */
static size_t next_record(const struct iovec **pieces, int *n, size_t *at, uint8_t together[RECORD],
                          const void **data) {
    size_t size = 0;
    while (*n && size < RECORD) {
        const char *from = (*pieces)->iov_base;
        size_t left = (*pieces)->iov_len - *at, part = left < RECORD - size ? left : RECORD - size;
        if (!size && (part == RECORD || *n == 1)) {
            *data = from + *at;
        } else if (part) {
            memcpy(together + size, from + *at, part);
            *data = together;
        }
        size += part;
        *at += part;
        if (part == left) {
            ++*pieces;
            --*n;
            *at = 0;
        }
    }
    return size;
}

static size_t pieces_size(const struct iovec *pieces, int n) {
    size_t size = 0;
    for (int i = 0; i < n; i++)
        size += pieces[i].iov_len;
    return size;
}

static tt__io tls_encrypt(SSL *ssl, const struct iovec *pieces, int n, size_t *put) {
    uint8_t together[RECORD];
    const void *data = NULL;
    for (size_t at = 0, size, written; *put < BURST; *put += size) {
        if (!(size = next_record(&pieces, &n, &at, together, &data)))
            break;
        ERR_clear_error();
        errno = 0;
        int result = SSL_write_ex(ssl, data, size, &written);
        int errnum = errno;
        if (result == 1)
            continue;
        if (tls_result(ssl, result, errnum) != TT__IO_FAILED)
            tt__fail_errno(TT_ERR_NET, EPIPE, "writing to the connection");
        return TT__IO_FAILED;
    }
    return TT__IO_DONE;
}

tt__io tt__tls_write(void *ssl, const struct iovec *pieces, int n, size_t *put) {
    wire *w = ssl_wire(ssl);
    *put = 0;
    tt__io io = tt__tls_flush(ssl);
    if (io != TT__IO_DONE)
        return io;
    size_t size = pieces_size(pieces, n), burst = size < BURST ? size : BURST;
    if (!burst)
        return TT__IO_DONE;
    if (!wire_reserve(w, burst + (burst / RECORD + 1) * AROUND)) {
        tt__fail(TT_ERR_MEMORY, "no memory to encrypt %zu bytes", burst);
        return TT__IO_FAILED;
    }
    if (tls_encrypt(ssl, pieces, n, put) || tt__tls_flush(ssl) == TT__IO_FAILED)
        return TT__IO_FAILED;
    return TT__IO_DONE;
}

bool tt__tls_unsent(const void *ssl) { return ssl_wire(ssl)->out; }

bool tt__tls_pending(const void *ssl) { return SSL_has_pending(ssl); }

void tt__tls_hold(void *ssl, bool on) { ssl_wire(ssl)->held = on; }

bool tt__tls_channel(void *ssl, uint8_t channel[TT__MAC_SIZE]) {
    static const char label[] = "EXPORTER-Channel-Binding"; /* RFC 9266 */
    ERR_clear_error();
    return SSL_export_keying_material(ssl, channel, TT__MAC_SIZE, label, sizeof label - 1, NULL, 0, 0) == 1;
}
