/* Who serves the store of a job that meets in etcd: the key tutti/RUN_ID/coordinator holds "ADDRESS PORT" of that
 * launcher's store. The key is under a lease, which a thread keeps alive. A launcher that finds no such key serves a
 * store and tries to put it there; only the first succeeds, and the others use its store.
 *
 * etcd may be gone while an attempt runs. A new round waits until the lease is known to live, because a coordinator
 * that stood still or was cut off may have been replaced meanwhile.
 *
 * MASTER_ADDR of the workers lies in memory that is shared with the keeper, which was forked before anybody knew it. */
#ifndef TT_LAUNCH_CLUSTER_ELECTION_H
#define TT_LAUNCH_CLUSTER_ELECTION_H

#include "launch/job.h"

#include <tutti/store.h>

typedef struct tt__election tt__election;

/* Prepare for job->etcd: no connection and no thread yet. job->master_addr becomes memory that this process's children
 * see, too: so the keeper, forked before the coordinator is known, gives its workers the right one. `job` is
 * borrowed. */
tt_status tt__election_new(tt__election **out, tt__job *job);

/* End the lease, so that another may follow at once. NULL is allowed. */
void tt__election_free(tt__election *e);

/* The functions up to the next line of dashes may be called by one thread at a time. */

/* Forget what was found; end the lease and a store that nobody has taken. */
void tt__election_reset(tt__election *e);

/* Ask etcd; blocks for a few seconds at most. *port := the port of the store at tt__election_host(), or 0: not known
 * yet, because etcd names nobody and this node may not serve. *own: this process serves it. Errors: as
 * tt_etcd_store()'s calls; TT_ERR_TIMEOUT is worth another try. */
tt_status tt__election_look(tt__election *e, int *port, bool *own);
const char *tt__election_host(const tt__election *e);

/* ---- */

/* Copy the result of the election to the job: master_addr, master_port, coordinates. Returns the server, once, if
 * this process serves the store: the caller's from then on. */
tt_store_server *tt__election_take(tt__election *e, tt__job *job);

typedef enum tt__election_state {
    TT__ELECTION_HOLDS,  /* the lease lives */
    TT__ELECTION_UNSURE, /* etcd has not answered for as long as a lease lives */
    TT__ELECTION_LOST    /* the lease has ended, and etcd names another process */
} tt__election_state;

/* The state of this process's lease, if it was elected; any thread. */
tt__election_state tt__election_state_of(tt__election *e);

#endif
