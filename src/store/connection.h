/* A client's connection: first the gate, then its session. The loop's thread only. */
#ifndef TT_STORE_CONNECTION_H
#define TT_STORE_CONNECTION_H

#include "net/net.h"
#include "store/gate.h"
#include "store/service.h"

#include <uv.h>

/* What the connections of one server share. */
typedef struct tt__hall {
    uv_loop_t *loop;
    uv_timer_t *timer; /* rings when the gate has something to do */
    tt__gate gate;
    tt__store_service service;
    tt__link connections;
    int64_t served_ns;           /* when something was last read */
    char read_buffer[64 * 1024]; /* one connection is read at a time */
} tt__hall;

void tt__hall_init(tt__hall *hall, uv_loop_t *loop, uv_timer_t *timer);

/* A new client on `fd`, which is the connection's from now on, also after a failure. False when memory is out. */
bool tt__connection_open(tt__hall *hall, int fd);

/* See those out that must go. */
void tt__hall_see_to_gate(tt__hall *hall);

/* Show out the one that has proved nothing for the longest time; false: there is none. */
bool tt__hall_make_room(tt__hall *hall);

/* Close all; they are freed when the loop runs once more. */
void tt__hall_close(tt__hall *hall);

#endif
