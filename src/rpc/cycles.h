/* Calls that wait for each other, across workers, are found and named.
 *
 * What a call waits for: a call that its function waits for; a value that another call makes; where it can't begin, as
 * all threads of its worker wait and no more can be made, any of the calls that these run. From a thread that has
 * waited for long, all that can be reached in this way is looked at, worker by worker (TT__RPC_PROBE). Where every path
 * ends in a call that was seen before, none of them can ever go on: the call that the search began with fails, and says
 * who waits for whom. A path that ends in anything else (a function that computes, a future that the program ends)
 * shows that something may still happen. What waits can't change before what it waits for, so nothing that is found so
 * is chance. */
#ifndef TT_RPC_CYCLES_H
#define TT_RPC_CYCLES_H

#include "rpc/rpc_state.h"

/* The lock is held in all of them. Begin searches for threads that have waited for long. */
void tt__cycles_look(tt_rpc *rpc, int64_t now_ms);

/* Another worker asks or answers. TT_ERR_PROTOCOL; TT_ERR_MEMORY. */
tt_status tt__cycles_told(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view);

/* A worker is lost, and with it its searches and answers; the worker ends, and all do. */
void tt__cycles_lost(tt_rpc *rpc, int id);
void tt__cycles_end(tt_rpc *rpc);

#endif
