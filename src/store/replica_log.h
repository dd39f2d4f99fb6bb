/* libraft's log, to look at: its entries have numbers from 1, and those before log->offset + 1 are gone. */
#ifndef TT_STORE_REPLICA_LOG_H
#define TT_STORE_REPLICA_LOG_H

#include "store/replica_load.h"

#include <stdbool.h>

bool tt__replica_log_has(const struct raft_log *log, raft_index index);

/* The term of what is at an index; 0: nothing that is known. */
raft_term tt__replica_log_term(const struct raft_log *log, raft_index index);

/* How many bytes the entries after an index have. */
size_t tt__replica_log_bytes(const struct raft_log *log, raft_index after);

/* How many entries, the last of them at an index, have so many bytes together at most; `most` of them at most, and one
 * at least. */
unsigned tt__replica_log_fit(const struct raft_log *log, raft_index last, size_t bytes, unsigned most);

#endif
