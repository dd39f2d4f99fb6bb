/* A call to another worker that is under way. */
#ifndef TT_RPC_OUTGOING_CALL_H
#define TT_RPC_OUTGOING_CALL_H

#include "rpc/rpc_state.h"

/* How far a call is. */
typedef enum out_stage {
    OUT_WAITS,   /* for its reply */
    OUT_REPLIED, /* the packet has come */
    OUT_BUSY,    /* a thread reads it, without the lock */
    OUT_LANDS,   /* its parts come */
    OUT_FAILED   /* without a reply: status, why */
} out_stage;

typedef struct tt__rpc_out {
    tt__rpc_due due;
    uint32_t id, next_free; /* the latter while it is free */
    bool used, is_due;
    out_stage stage;
    int to;
    tt__rpc_packet_kind kind;
    char function[TT__RPC_FUNCTION_NAME];
    tt_future *future;
    tt_rref *rref;                   /* of FETCH and KEEP, a share */
    int64_t timeout_ms, deadline_ms; /* 0: none */
    uint32_t record;                 /* its number; 0: none */
    tt__rpc_transfer sends;
    tt__rpc_part *parts;
    uint8_t *apart;
    uint32_t part_count;

    tt_status status;
    char *why;
    tt__rpc_packet *reply;
    tt__rpc_packet_view view;
    tt_rref **refs;
    tt__rpc_transfer receives;
    tt__rpc_landing *landings;
    void *value_apart;
    bool value_read;
    tt_rpc_value value;
    struct tt_tensor ***tensors;
    uint32_t tensor_count;
} tt__rpc_out;

/* ---- outgoing_calls.c: their table; the lock is held */

/* Take a place for a call; its id differs from that of the last one there. NULL, recorded. */
tt__rpc_out *tt__out_take(tt_rpc *rpc);

/* Find the call to `to` that has this id; NULL: it is over. */
tt__rpc_out *tt__out_find(const tt_rpc *rpc, uint32_t id, int to);

/* End what of it is under way, and free its place. */
void tt__out_give_back(tt_rpc *rpc, tt__rpc_out *out);

/* It is to be gone on with. */
void tt__out_becomes_due(tt_rpc *rpc, tt__rpc_out *out);

/* ---- call_results.c */

/* Go on with a call whose reply, or end, has come: its ->due.run. */
void tt__out_run(tt_rpc *rpc, tt__rpc_due *due);

#endif
