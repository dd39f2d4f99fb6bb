/* The client of a store of several replicas. It looks for the one that leads, and for the next one when that is gone;
 * what it has not heard the answer of it sends again, numbered, so that it happens once. */
#ifndef TT_STORE_REPLICA_STORE_H
#define TT_STORE_REPLICA_STORE_H

#include "store/replica_place.h"

#include <tutti/store.h>

/* Make a store that speaks to the replicas at `place`, with the job secret as tt_tcp_store() chooses it. Connects with
 * its first call. timeout_ms: of calls that name none; 0 = that of tt_tcp_store(). Calls end at their deadline, also
 * where no replica leads: TT_ERR_TIMEOUT, with what each of them says. A write that ended so may have happened.
 * TT_ERR_AUTH: it does not belong to the job, as all of them say. TT_ERR_PROTOCOL: a replica refuses the request. */
tt_status tt__replica_store(tt_store **out, const tt__replica_place *place, const char *secret, int64_t timeout_ms);

#endif
