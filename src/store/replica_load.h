/* libraft, loaded by the first replica. Only the replica's own files (TT__RAFT) include this: libraft is optional, and
 * where its header was missing when Tutti was built they are empty. */
#ifndef TT_STORE_REPLICA_LOAD_H
#define TT_STORE_REPLICA_LOAD_H

#include <tutti/base.h>

#include <raft.h>

/* The functions that are used. Types and constants come from its header. */
#define TT__RAFT_FUNCTIONS(X)            \
    X(raft_add)                          \
    X(raft_apply)                        \
    X(raft_assign)                       \
    X(raft_barrier)                      \
    X(raft_bootstrap)                    \
    X(raft_close)                        \
    X(raft_configuration_add)            \
    X(raft_configuration_close)          \
    X(raft_configuration_encode)         \
    X(raft_configuration_init)           \
    X(raft_free)                         \
    X(raft_init)                         \
    X(raft_leader)                       \
    X(raft_malloc)                       \
    X(raft_remove)                       \
    X(raft_set_install_snapshot_timeout) \
    X(raft_set_pre_vote)                 \
    X(raft_set_snapshot_threshold)       \
    X(raft_set_snapshot_trailing)        \
    X(raft_start)                        \
    X(raft_state)                        \
    X(raft_strerror)

typedef struct tt__raft {
#define TT__RAFT_FIELD(name) __typeof__(name) *name;
    TT__RAFT_FUNCTIONS(TT__RAFT_FIELD)
#undef TT__RAFT_FIELD
} tt__raft;

/* Return its functions; NULL and TT_ERR_UNSUPPORTED where there is no libraft. From any thread. */
const tt__raft *tt__raft_get(void);

#endif
