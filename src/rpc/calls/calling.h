/* Making calls, and what ends them: a reply, a timeout, a lost worker, the shutdown. */
#ifndef TT_RPC_CALLING_H
#define TT_RPC_CALLING_H

#include "rpc/rpc_state.h"

/* A call to be made. */
typedef struct tt__rpc_request {
    tt__rpc_packet_kind kind; /* CALL, KEEP or FETCH */
    int to;
    const char *function;
    const tt__rpc_function *known; /* this worker's function of that name; NULL: it has none, or it is a FETCH */
    const tt_rpc_value *first;     /* an argument before `args`; or NULL */
    tt_rpc_values args;
    tt_rref *fetched;   /* of FETCH: the reference */
    int64_t timeout_ms; /* 0: rpc->timeout_ms; below 0: none */
} tt__rpc_request;

/* Make a call. CALL and FETCH: *out receives its future, and `kept` is NULL. KEEP: *kept receives the reference to its
 * result, and `out` is NULL. Waits while TT__RPC_QUEUED_MAX bytes of requests to that worker are unsent, unless in a
 * callback. Takes the lock. */
tt_status tt__call_begin(tt_rpc *rpc, const tt__rpc_request *request, tt_future **out, tt_rref **kept);

/* ---- the lock is held */

/* Take a REPLY or ERROR packet. The packet belongs to the call, unless this fails. Errors: TT_ERR_PROTOCOL,
 * TT_ERR_MEMORY. */
tt_status tt__call_replied(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet);

/* Fail all calls to a lost worker; or all calls, since this worker ends. */
void tt__calls_lost(tt_rpc *rpc, tt__rpc_peer *peer);
void tt__calls_end(tt_rpc *rpc, const char *why);

/* Find the call whose reply is to end `future`: its callee and id. False: there is none. */
bool tt__call_of_future(const tt_rpc *rpc, const tt_future *future, int *to, uint32_t *id);

/* Fail call `id` to worker `to`, if it waits. */
void tt__call_fail(tt_rpc *rpc, int to, uint32_t id, tt_status status, const char *why);

/* Fail calls whose timeout has passed. */
void tt__calls_expire(tt_rpc *rpc, int64_t now_ms);

#endif
