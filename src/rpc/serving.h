/* Calls of other workers, and of this one to itself: from their packet to their reply. */
#ifndef TT_RPC_SERVING_H
#define TT_RPC_SERVING_H

#include "rpc/rpc_state.h"

/* A call, a call whose result is kept, or a fetch has come in a packet, which is taken. TT_ERR_PROTOCOL it can't be;
 * TT_ERR_MEMORY. The lock is held, as in the next. */
tt_status tt__serve_begin(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view, tt__rpc_packet *packet);

/* The caller does not want the reply any more. */
void tt__serve_forget(tt_rpc *rpc, int from, uint32_t id);

/* Calls whose parts will not come, or whose replies will not be taken: their worker is lost. */
void tt__serve_lost(tt_rpc *rpc, int id);

/* For cycles.c: the call with this id; the call that makes a value that is referred to (NULL: none is known); what a
 * call does now, and the future it waits for where it replies later; the call behind `call` (NULL: the first); its
 * function, whose name no 0 ends; a number that no other call has. */
typedef enum tt__served { TT__SERVED_QUEUED, TT__SERVED_RUNS, TT__SERVED_LATER, TT__SERVED_MOVES } tt__served;
tt_rpc_call *tt__serve_find(const tt_rpc *rpc, int from, uint32_t id);
tt_rpc_call *tt__serve_maker(const tt_rpc *rpc, const tt_future *value);
tt__served tt__serve_state(const tt_rpc_call *call, tt_future **later);
tt_rpc_call *tt__serve_next(const tt_rpc *rpc, const tt_rpc_call *call);
const char *tt__serve_function(const tt_rpc_call *call, int *bytes);
uint64_t tt__serve_key(const tt_rpc_call *call);

/* What waits in the queue can't begin, as no thread is left: fail it. */
void tt__serve_refuse_queue(tt_rpc *rpc);

/* Begin calls that were kept, for memory or until their caller takes what it is sent, and need not be any more. */
void tt__serve_look(tt_rpc *rpc);

/* The worker ends: replies that are under way stop, and calls that wait for a future end. */
void tt__serve_end(tt_rpc *rpc);

/* "add() for worker ps (id 1)": functions that run, or are to reply later. Returns how many. */
int tt__serve_list_running(tt_rpc *rpc, char *text, size_t size);

#endif
