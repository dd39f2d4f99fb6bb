/* Starting and waking the threads of the pool, which run functions. There are up to tt_rpc.threads, and one more for
 * each that waits in a wait of Tutti's, up to tt_rpc.max_threads. The lock is held. */
#ifndef TT_RPC_POOL_CREW_H
#define TT_RPC_POOL_CREW_H

#include "rpc/rpc_state.h"

/* Wake or start a thread of the pool for what is in the queue, unless enough are on their way. */
void tt__rpc_crew_call(tt_rpc *rpc);

/* The same for a thread of the pool that takes what is in the queue itself, as soon as the function that it is about to
 * run has returned: wake another one only if functions have taken long of late (tt_rpc.run_ns). If this one takes long
 * after brief ones, the keeper calls another thread. */
void tt__rpc_crew_relieve(tt_rpc *rpc);

/* Note how long a function ran. */
void tt__rpc_crew_note_run(tt_rpc *rpc, int64_t ns);

/* Are calls queued that can't begin, since all threads wait for others, and no more can be started? */
bool tt__rpc_crew_is_stuck(const tt_rpc *rpc);

/* Is there a thread for one more call of this worker? The last ones are for workers that have few, so that one whose
 * calls all wait does not keep others from making theirs. */
bool tt__rpc_crew_spares(const tt_rpc *rpc, const tt__rpc_peer *peer);

/* Stop all threads, and wait until they have ended. Takes the lock. */
void tt__rpc_crew_end(tt_rpc *rpc);

#endif
