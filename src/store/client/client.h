/* One connection to a TCPStore server: requests are gathered and sent in one write, replies are read through a buffer.
 * Its owner locks it. After any failure except a cancelled wait the connection is closed, and all calls fail. */
#ifndef TT_STORE_CLIENT_H
#define TT_STORE_CLIENT_H

#include "net/net.h"
#include "net/stream.h"
#include "store/wire.h"

/* Credentials of a client; they must outlive it. Zeroed: the client proves nothing, like PyTorch's. */
typedef struct tt__store_access {
    tt__secret secret;
    tt__tls *tls;
} tt__store_access;

typedef struct tt__store_client {
    tt__stream stream; /* fd -1: closed */
    tt_store_dialect dialect;
    bool ended;                 /* closed because the other side closed it */
    uint8_t life[TT__JOB_SIZE]; /* the server's (tt__store_life()); zeros: it has none, or has proved nothing */
    tt__bytes out;
    uint8_t in[4096];
    size_t in_start, in_end;
} tt__store_client;

/* Connect, prove the secret if there is one and, in the 2.x dialect, send VALIDATE. tt__store_client_close() is allowed
 * whatever the result. */
tt_status tt__store_client_open(tt__store_client *client, const char *host, int port, tt_store_dialect dialect,
                                const tt__store_access *access, int64_t deadline_ms);
bool tt__store_client_is_open(const tt__store_client *client);
void tt__store_client_close(tt__store_client *client);

/* Start a request, whose fields the caller puts into client->out. TT_ERR_UNSUPPORTED: the dialect lacks `op`. */
tt_status tt__store_client_begin(tt__store_client *client, tt__store_op op);

/* Send the requests in client->out. */
tt_status tt__store_client_send(tt__store_client *client, int64_t deadline_ms);

tt_status tt__store_client_read(tt__store_client *client, void *data, size_t size, int64_t deadline_ms);
tt_status tt__store_client_read_i64(tt__store_client *client, int64_t *value, int64_t deadline_ms);
/* Read a length, refused above `max`, and that many bytes. */
tt_status tt__store_client_read_string(tt__store_client *client, tt_store_value *value, size_t max,
                                       int64_t deadline_ms);

/* Read the one byte that ends a WAIT or BARRIER. After TT_ERR_TIMEOUT and TT_ERR_ABORTED (net/net.h) in the 2.x
 * dialect, the wait is cancelled and the connection still good. In the 1.13 dialect a late answer would look like the
 * next reply, so the connection is closed. */
tt_status tt__store_client_read_stop_waiting(tt__store_client *client, int64_t deadline_ms);

#endif
