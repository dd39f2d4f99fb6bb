/* Calls to other workers, from their beginning to their reply. */
#ifndef TT_RPC_CALLING_H
#define TT_RPC_CALLING_H

#include "rpc/rpc_state.h"

/* A call to be made. */
typedef struct tt__rpc_request {
    tt__rpc_packet_kind kind; /* CALL, KEEP or FETCH */
    int to;
    const char *function;
    const tt__rpc_function *known; /* as this worker has it; NULL: it does not, or it is a fetch */
    const tt_rpc_value *first;     /* an argument before the others; or NULL */
    tt_rpc_values args;
    tt_rref *fetched;   /* of FETCH */
    int64_t timeout_ms; /* 0: that of the worker, less: none */
} tt__rpc_request;

/* Make a call: *out receives its future. KEEP: *kept receives the reference to its result, and *out is not wanted.
 * Takes the lock; may wait for room among the requests that wait, unless in a callback. */
tt_status tt__call_begin(tt_rpc *rpc, const tt__rpc_request *request, tt_future **out, tt_rref **kept);

/* ---- the lock is held */

/* A reply has come, in a packet, which is taken. TT_ERR_PROTOCOL: it is none. */
tt_status tt__call_replied(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet);

/* All calls to a worker fail: it is lost. All calls: the worker ends. */
void tt__calls_lost(tt_rpc *rpc, tt__rpc_peer *peer);
void tt__calls_end(tt_rpc *rpc, const char *why);

/* Find the call whose future this is; false: there is none, or it has been replied to. Fail it. */
bool tt__call_of_future(const tt_rpc *rpc, const tt_future *future, int *to, uint32_t *id);
void tt__call_fail(tt_rpc *rpc, int to, uint32_t id, tt_status status, const char *why);

/* Fail calls whose time is over. */
void tt__calls_expire(tt_rpc *rpc, int64_t now_ms);

#endif
