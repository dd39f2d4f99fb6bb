/* Connections of a store's clients: admission first, then a session. Used by the loop's thread only. */
#ifndef TT_STORE_CONNECTION_H
#define TT_STORE_CONNECTION_H

#include "net/net.h"
#include "store/server/admission.h"
#include "store/server/service.h"

#include <uv.h>

/* All connections of one server, and what they share. */
typedef struct tt__connections {
    /* The store's life, which its clients learn in the handshake. Its first half is drawn when the server starts, the
     * second counts renewals. */
    uint8_t life[TT__JOB_SIZE];
    uv_loop_t *loop;
    uv_timer_t *timer; /* for the next peer to expire */
    tt__admission admission;
    tt__store_service service;
    tt__list_node open; /* of connection.node */
    int64_t served_ns;  /* when requests were last read */
    char read_buffer[64 * 1024];
} tt__connections;

void tt__connections_init(tt__connections *all, uv_loop_t *loop, uv_timer_t *timer);

/* Serve a new client on `fd`, which is the connection's from now on, also after a failure. False: no memory. */
bool tt__connection_open(tt__connections *all, int fd);

/* Close the connection that has been pending longest; false: none is pending. */
bool tt__connections_drop_oldest(tt__connections *all);

/* Close all connections; the loop's next run frees them. */
void tt__connections_close(tt__connections *all);

/* Close the connections, and forget the keys, that a renewal (renewal.h) ends. */
void tt__connections_renew(tt__connections *all);

#endif
