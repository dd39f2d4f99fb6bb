/* What libraft asks of the machine (struct raft_io), in memory: a replica keeps nothing on disk. It need not, as one
 * that was started again is another one, with an id of its own, that the others take in (replica.h): no id ever comes
 * back without what it had promised and acknowledged. What libraft keeps in its log is all there is.
 *
 * Promises are kept the moment they are asked for, but their callbacks come later, from the loop: libraft is not made
 * to be called back at once. */
#ifndef TT_STORE_REPLICA_IO_H
#define TT_STORE_REPLICA_IO_H

#include "base/bytes.h"
#include "store/replica_load.h"

#include <uv.h>

typedef struct tt__replica_io {
    struct raft_io io;
    const tt__raft *raft;
    uv_timer_t tick;
    uv_idle_t idle;                            /* runs while something is done */
    struct tt__replica_done *done, *last_done; /* what is to be called back, in order */
    raft_io_tick_cb ticked;
    raft_io_recv_cb received;
    struct raft_snapshot *snapshot; /* the newest, or NULL */
    struct raft_buffer first;       /* the configuration that a cluster began with */
    /* Send a message; false: the server is not connected. */
    bool (*send)(void *user, const struct raft_message *message);
    /* The loop has called libraft back: it may be in another state now. */
    void (*moved)(void *user);
    void *user;
} tt__replica_io;

/* Prepare io->io; send, moved and user are the caller's to set. The loop's thread alone. */
void tt__replica_io_init(tt__replica_io *io, const tt__raft *raft, uv_loop_t *loop);

/* Call libraft back, of all that is done. Before each message and each tick: it confuses entries that it takes away and
 * gets again while it is still to hear that they are stored. Not from a callback of libraft. */
void tt__replica_io_settle(tt__replica_io *io);

/* A message of the wire, for libraft, which takes what it holds. The caller has it checked (replica_check.h), and looks
 * what has moved. */
void tt__replica_io_receive(tt__replica_io *io, struct raft_message *message);

/* Free what is left when libraft is closed. */
void tt__replica_io_free(tt__replica_io *io);

#endif
