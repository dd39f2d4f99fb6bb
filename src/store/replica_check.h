/* Whether libraft may be given a message. It takes much for granted of what members say (that indices do not go back,
 * that nobody else leads in its term, that a configuration is one), and breaks, or gives up for good, where it isn't
 * so. A member that says such a thing is mistaken, or lies. Claims that can't be checked pass. */
#ifndef TT_STORE_REPLICA_CHECK_H
#define TT_STORE_REPLICA_CHECK_H

#include "store/replica_load.h"

#include <stdbool.h>

typedef enum tt__replica_verdict {
    TT__REPLICA_FINE,
    TT__REPLICA_LIE, /* `why`: what was expected, and what came */
    TT__REPLICA_LOST /* true, but what libraft needs for it is gone from the log: this replica has to start over */
} tt__replica_verdict;

enum { TT__REPLICA_WHY_SIZE = 240 };

/* Look at a message to this raft of the replica that is `from`, of a store of so many. All that libraft was to be told
 * of it has been: tt__replica_io_settle(). */
tt__replica_verdict tt__replica_check(const struct raft *raft, int members, raft_id from,
                                      const struct raft_message *message, char why[TT__REPLICA_WHY_SIZE]);

#endif
