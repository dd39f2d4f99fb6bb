/* How many threads run functions: as many as may run at once (tt_rpc.threads), and one more for each that waits in
 * Tutti's own waits, up to tt_rpc.max_threads. The lock is held. */
#ifndef TT_RPC_POOL_CREW_H
#define TT_RPC_POOL_CREW_H

#include "rpc/rpc_state.h"

/* There is something in the queue: see that a thread takes it, unless this is one that will. */
void tt__rpc_crew_call(tt_rpc *rpc);

/* The same, by a thread that will take it once the function that it runs has returned: another is called only if functions
 * have run long of late. Where one does run long after brief ones, the keeper calls another thread for those that wait. */
void tt__rpc_crew_relieve(tt_rpc *rpc);
void tt__rpc_crew_note_run(tt_rpc *rpc, int64_t ns);

/* Is every thread there may be waiting for others, so that what is in the queue will not begin? */
bool tt__rpc_crew_is_stuck(const tt_rpc *rpc);

/* End all threads, and wait for it; takes the lock. */
void tt__rpc_crew_end(tt_rpc *rpc);

#endif
