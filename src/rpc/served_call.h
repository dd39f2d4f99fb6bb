/* A call of another worker, or of this one to itself, that is served here: what it has, and its reply. */
#ifndef TT_RPC_SERVED_CALL_H
#define TT_RPC_SERVED_CALL_H

#include "rpc/rpc_state.h"

/* How far a call is. */
typedef enum call_stage {
    CALL_QUEUED, /* to be read */
    CALL_LANDS,  /* its parts come */
    CALL_RUNS,
    CALL_LATER,  /* the function has returned, and replies by a future */
    CALL_REPLIES /* the reply's parts go out */
} call_stage;

/* A call that a future will end. Who takes the link has the call: the future's callback, or who drops the call. */
typedef struct later_link {
    _Atomic bool taken;
    tt_rpc_call *call;
} later_link;

struct tt_rpc_call {
    tt__rpc_due due;
    struct tt_rpc_call *next, *previous; /* in rpc->serving */
    tt_rpc *rpc;
    int from;
    call_stage stage;
    bool lost;         /* the caller takes no reply */
    bool admitted;     /* its parts may come */
    tt_status refused; /* it is not to be begun; `apart` says why */
    size_t counted;    /* bytes in rpc->counters.bytes, */
    size_t landing;    /* and in rpc->landing_bytes */
    size_t window;     /* that it takes of the caller's window */
    tt__rpc_packet *packet;
    tt__rpc_packet_view view;
    const tt__rpc_function *function; /* NULL: a fetch */
    tt_rref **refs;
    tt_rref *kept;     /* of KEEP: where the result goes; a share */
    tt_rpc_value args; /* a list */
    bool args_read;
    tt__rpc_landing *landings;
    void *value_apart;
    struct tt_tensor ***tensors;
    uint32_t tensor_count;
    tt__rpc_transfer transfer; /* parts in, then out */

    tt_rpc_value result;
    bool returned;
    tt_future *later;
    later_link *link;    /* of CALL_LATER */
    tt__rpc_part *parts; /* of the reply */
    uint8_t *apart;
    uint32_t part_count;
};

/* ---- replying.c */

/* Reply to a call whose function is through: with its result, or with this thread's last error if `status` is one. And
 * end it. Without the lock, as in the next two. */
void tt__served_finish(tt_rpc_call *call, tt_status status);

/* Reply when `future` is done. */
void tt__served_follow(tt_rpc_call *call, tt_future *future);

/* End a call without a reply. */
void tt__served_end(tt_rpc_call *call);

/* End a call that waits for a future, whose reply nobody will take. The lock is held, as in the next. */
void tt__served_drop(tt_rpc *rpc, tt_rpc_call *call);

/* A call is begun, or over: what it took of the caller's window is given back, and its bytes wait no more. */
void tt__served_uncount(tt_rpc *rpc, tt_rpc_call *call);

#endif
