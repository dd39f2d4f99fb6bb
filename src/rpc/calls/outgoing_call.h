/* A call that this worker has made, until its future is done.
 *
 *   CALL is sent -> OUT_WAITS -> OUT_REPLIED -> OUT_BUSY -> [OUT_LANDS -> OUT_BUSY] -> freed
 *                            \-> OUT_FAILED (timeout, lost worker, shutdown) -> freed
 *
 * tt__out_run() does the steps from OUT_REPLIED and OUT_FAILED on; the call is `due` when one is to be done. */
#ifndef TT_RPC_OUTGOING_CALL_H
#define TT_RPC_OUTGOING_CALL_H

#include "rpc/rpc_state.h"

typedef enum out_stage {
    OUT_WAITS,   /* it has no reply yet */
    OUT_REPLIED, /* the packet with the reply has come */
    OUT_BUSY,    /* a thread reads the reply, without the lock */
    OUT_LANDS,   /* parts of the result are being received */
    OUT_FAILED   /* it ends without a reply, with `status` and `why` */
} out_stage;

typedef struct tt__rpc_out {
    tt__rpc_due due;
    uint32_t id;
    uint32_t next_free; /* while the place is free: the index of the next free one */
    bool used;          /* the place has a call */
    bool is_due;        /* `due` is in rpc->due */
    out_stage stage;
    int to;
    tt__rpc_packet_kind kind;
    char function[TT__RPC_FUNCTION_NAME];
    tt_future *future;
    tt_rref *rref;                   /* of FETCH and KEEP, a share */
    int64_t timeout_ms, deadline_ms; /* 0: none */
    uint32_t record;                 /* in the flight recorder; 0: none */
    tt__rpc_transfer sends;          /* of the arguments' parts */
    tt__rpc_part *parts;             /* (part_count) */
    uint8_t *apart;                  /* the arguments as sent, if they are a part */
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

/* ---- the table of these calls; the lock is held */

/* Take a free place for a call. Its id differs from that of the call that had the place before. NULL, recorded: no
 * memory, or too many calls. */
tt__rpc_out *tt__out_take(tt_rpc *rpc);

/* Find call `id` to worker `to`; NULL: it has ended. */
tt__rpc_out *tt__out_find(const tt_rpc *rpc, uint32_t id, int to);

/* End a call's transfers, and free its place. */
void tt__out_give_back(tt_rpc *rpc, tt__rpc_out *out);

/* Put a call into rpc->due, so that the poller calls tt__out_run(). */
void tt__out_becomes_due(tt_rpc *rpc, tt__rpc_out *out);

/* ---- their replies */

/* Do the next step of a call: read the reply, receive its parts, end the future. The lock must not be held. */
void tt__out_run(tt_rpc *rpc, tt__rpc_due *due);

#endif
