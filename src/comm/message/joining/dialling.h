/* TCP links that are made when they are needed, between workers that come and go.
 *
 * Either side may connect, which is called a dial. As in joining.c, a worker's addresses are tried one after the other,
 * and both sides prove the job secret. Then the side that connected says who it is, on one connection at a time, and
 * the other answers whether that connection is the link. If both dial at once, the one with the higher id decides: the
 * lower one takes what it is asked on; the higher one leaves a question unanswered until its own dial has ended, and
 * then declines it, or takes it if its own has failed. So both mean the same connection, and send on no other.
 *
 * Everything runs in whatever thread serves the engine's links: an epoll of its own, with a timer, is watched there.
 * Every function is called with the engine's lock held, unless it says otherwise. */
#ifndef TT_COMM_MESSAGE_DIALLING_H
#define TT_COMM_MESSAGE_DIALLING_H

#include "comm/message/joining/joining.h"

typedef struct tt__dialling tt__dialling;

typedef struct tt__dialling_config {
    tt__messages *messages; /* it listens already */
    const tt__intro *intro; /* of this worker; borrowed */
    void *user;

    /* Worker `peer` has called and proved that it belongs here: may it have a link? */
    bool (*may_link)(void *user, int peer, const tt__intro *intro);

    /* There is a link to `peer` now. */
    void (*linked)(void *user, int peer);

    /* A dial has failed, and the reason is this thread's last error. */
    void (*failed)(void *user, int peer);
} tt__dialling_config;

/* Begin to accept calls, and start the engine's thread. Who calls gets a link when packets are taken
 * (tt__messages_take_packets()). The lock must not be held. */
tt_status tt__dialling_begin(tt__dialling **out, const tt__dialling_config *config);

/* Begin a dial to `peer`, which has no link, at the addresses of its token; linked() or failed() ends it, though not
 * before this returns. Does nothing if one is under way. Errors: TT_ERR_PROTOCOL the token is none; TT_ERR_MEMORY. */
tt_status tt__dial(tt__dialling *dialling, int peer, const char *addresses);

/* Hang up on all that are not linked yet; nothing is called back any more. It is freed after the engine was closed.
 * `quietly`: in a forked child. */
void tt__dialling_stop(tt__dialling *dialling, bool quietly);

/* Free it. The lock must not be held. NULL is allowed. */
void tt__dialling_free(tt__dialling *dialling);

#endif
