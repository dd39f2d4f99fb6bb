/* TCP links that are made when they are first needed, between workers that come and go.
 *
 * Either worker may connect to the other, which is called a dial. As in joining.c, the addresses are tried one after
 * the other, and both sides prove the job secret. Then
 *
 *   worker that dials                                the other worker
 *   its id, name and host (tt__intro)  ---------->   may_link()?
 *                                      <----------   TAKEN: this connection is the link; or DECLINED, LOST, WAIT
 *
 * If both dial each other at the same time, both must choose the same connection:
 *   - the worker with the lower id answers TAKEN, and drops its own dial;
 *   - the one with the higher id answers WAIT until its own dial has ended: DECLINED if that has made the link, TAKEN
 *     if it has failed.
 *
 * All of it runs in the thread that serves the engine's links, which watches an epoll with a timer for it. Functions
 * are called with the engine's lock held, unless they say otherwise. */
#ifndef TT_COMM_MESSAGE_DIALLING_H
#define TT_COMM_MESSAGE_DIALLING_H

#include "comm/message/joining/joining.h"

typedef struct tt__dialling tt__dialling;

typedef struct tt__dialling_config {
    tt__messages *messages; /* which listens already */
    const tt__intro *intro; /* of this worker; borrowed */
    void *user;

    /* May worker `peer`, which has connected and proved the job secret, have a link? */
    bool (*may_link)(void *user, int peer, const tt__intro *intro);

    /* Called when a link to `peer` was made. */
    void (*linked)(void *user, int peer);

    /* Called when a dial has failed, with the reason as this thread's last error. */
    void (*failed)(void *user, int peer);
} tt__dialling_config;

/* Begin to accept connections, and start the engine's thread. Workers that connect get their answer after
 * tt__messages_take_packets(). The lock must not be held. */
tt_status tt__dialling_begin(tt__dialling **out, const tt__dialling_config *config);

/* Dial `peer`, which has no link, at the addresses of its token. linked() or failed() is called at the end, but not
 * before this returns. Does nothing if a dial is under way. Errors: TT_ERR_PROTOCOL the token is malformed;
 * TT_ERR_MEMORY. */
tt_status tt__dial(tt__dialling *dialling, int peer, const char *addresses);

/* Close all connections that are no links yet; no callback is called any more. tt__dialling_free() frees the rest,
 * after the engine was closed. `quietly`: in a forked child. */
void tt__dialling_stop(tt__dialling *dialling, bool quietly);

/* Free it. The lock must not be held. NULL is allowed. */
void tt__dialling_free(tt__dialling *dialling);

#endif
