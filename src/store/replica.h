/* One replica of a store that several machines serve, so that it outlives the loss of some of them: of one of three, of
 * two of five. libraft agrees on the order of writes; what is agreed on changes the same keys everywhere
 * (replica_state.h). One replica leads, and serves all clients (replica_store.h), reads too, each after the others have
 * confirmed that it leads; those that come to another one are told who leads.
 *
 * Members and processes. A member is a place in the list of endpoints; the process that serves there has an id, drawn
 * when it starts. Nothing is on disk: a replica that was killed comes back as another process, which the leader takes
 * in for the former one (raft_remove, raft_add), with all that the store holds. A new store begins when all members are
 * there and all are new: the first of them names the ids of all (TT__REPLICA_BEGIN). So no new member can begin one
 * beside a store that lives, nor vote with what it has forgotten. Where more are lost at once than may be, what is left
 * serves nobody, and must be started again as well.
 *
 * Replicas speak to each other as clients that were admitted (admission.h): who does not prove the job secret, where
 * there is one, can't. */
#ifndef TT_STORE_REPLICA_H
#define TT_STORE_REPLICA_H

#include "store/connection.h"
#include "store/replica_place.h"

typedef struct tt__replica tt__replica;

/* Make the replica of a member; libraft is loaded. `level`: of the lines that say whom it waits for. Errors:
 * TT_ERR_UNSUPPORTED there is no libraft, or this build does without; TT_ERR_MEMORY; of the secret as of
 * tt_tcp_store(). */
tt_status tt__replica_new(tt__replica **out, const tt__replica_place *place, int member, const char *secret,
                          tt_log_level level);

/* Begin, in the server whose loop and connections these are, before its thread does. */
tt_status tt__replica_begin(tt__replica *replica, uv_loop_t *loop, tt__connections *all);

/* End it, from the loop's thread, when all connections are closed. All handles are left for the server to close. */
void tt__replica_close(tt__replica *replica);

/* Free it, when the loop has ended. NULL is allowed. */
void tt__replica_free(tt__replica *replica);

/* Serve that member of the place whose address is this machine's and free: server.c. args->host and port are ignored.
 * *member: which one. level: as above. */
tt_status tt__replica_server_new(tt_store_server **out, const tt__replica_place *place,
                                 const tt_store_server_new_args *args, tt_log_level level, int *member);

#endif
