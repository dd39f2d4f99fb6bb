/* Sends and receives, one by one or in batches: machines on messages, whatever the group shares. */
#ifndef TT_COMM_P2P_H
#define TT_COMM_P2P_H

#include "comm/collective/collective.h"

static inline bool tt__is_p2p(tt_op op) {
    return op == TT_OP_SEND || op == TT_OP_RECV || op == TT_OP_BATCH_ISEND_IRECV;
}

/* What goes by messages whatever the group shares. */
static inline bool tt__by_messages(tt_op op) { return tt__is_p2p(op) || op == TT_OP_MONITORED_BARRIER; }

extern const tt__algorithm tt__send_message, tt__recv_message, tt__batch_messages;

/* `message` of this work differs from what the other side has: record both. The lock is held, and given back while another host is asked; the
 * work may have ended then. */
tt_status tt__p2p_mismatch(const tt_work *work, tt__message message);

#endif
