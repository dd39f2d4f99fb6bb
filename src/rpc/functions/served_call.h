/* A call that this worker serves, for another worker or for itself: its state, and its reply.
 *
 *   packet comes -> CALL_QUEUED -> [CALL_LANDS] -> CALL_RUNS -> [CALL_LATER] -> [CALL_REPLIES] -> freed
 *
 * Stages in brackets are skipped if the arguments have no parts, the function returns its result itself, or the result
 * has no parts. A call without a thread is in rpc->queue, in rpc->held or rpc->slow (it waits for memory, or for its
 * caller to take earlier replies), is the `due` of its transfer, or belongs to the future that it replies with. */
#ifndef TT_RPC_SERVED_CALL_H
#define TT_RPC_SERVED_CALL_H

#include "rpc/rpc_state.h"

typedef enum call_stage {
    CALL_QUEUED, /* no thread has read its arguments yet */
    CALL_LANDS,  /* parts of its arguments are being received */
    CALL_RUNS,   /* a thread runs its function */
    CALL_LATER,  /* the function has returned a future (tt_rpc_return_future()); the call replies when that is done */
    CALL_REPLIES /* parts of its result are being sent */
} call_stage;

/* Leads from a future to the call that replies with its value. Two may want the call at the same time: the callback of
 * the future, to reply, and tt__served_drop(), to end the call without a reply. Whichever sets `taken` first gets the
 * call; the other one leaves it alone. The callback frees the link. */
typedef struct later_link {
    _Atomic bool taken;
    tt_rpc_call *call;
} later_link;

typedef struct tt__served_place {
    struct tt_rpc_call *next, **at; /* at: where this call is pointed to; NULL: it is not there */
} tt__served_place;

struct tt_rpc_call {
    tt__rpc_due due;
    struct tt_rpc_call *next, *previous; /* in rpc->serving */
    tt__served_place in_table[2];        /* in rpc->served */
    tt_rpc *rpc;
    int from;
    call_stage stage;
    bool lost;         /* the caller was lost, or the worker ends: nobody takes a reply */
    bool forgotten;    /* the caller has given it up, and sends no parts any more */
    bool admitted;     /* its parts are counted in rpc->landing_bytes, and may be received */
    bool on_thread;    /* a thread runs it */
    tt_status refused; /* fail it with this status, and the text `apart`, instead of running it */
    size_t counted;    /* bytes that its packet adds to rpc->counters.bytes */
    size_t landing;    /* bytes that its parts add to rpc->counters.bytes and to rpc->landing_bytes */
    size_t window;     /* bytes that it adds to the caller's window (window_in) */
    tt__rpc_packet *packet;
    tt__rpc_packet_view view;
    const tt__rpc_function *function; /* NULL: a FETCH */
    tt_rref **refs;                   /* (header.refs) those of the arguments; a share of each */
    tt_rref *kept;                    /* of KEEP: the reference that gets the result; a share */
    tt_rpc_value args;                /* a list */
    bool args_read;
    tt__rpc_landing *landings;   /* (header.parts) memory of the arguments' parts */
    void *value_apart;           /* the arguments as received, if they are a part (TT__RPC_VALUE_APART) */
    struct tt_tensor ***tensors; /* (tensor_count) where `args` has its tensors */
    uint32_t tensor_count;
    tt__rpc_transfer transfer; /* of the arguments' parts, later of the result's */

    tt_rpc_value result;
    bool returned;       /* `result` was set by tt_rpc_return() */
    tt_future *later;    /* was set by tt_rpc_return_future(); a share */
    later_link *link;    /* from CALL_LATER on */
    tt__rpc_part *parts; /* (part_count) of the result */
    uint8_t *apart;      /* the result as sent, if it is a part; of a refused call the error's text */
    uint32_t part_count;
};

/* ---- replying.c */

/* Reply to a call whose function has returned, with its result or, if `status` is an error, with this thread's last
 * error. Then end the call. The lock must not be held, as in the next two. */
void tt__served_finish(tt_rpc_call *call, tt_status status);

/* Reply when `future` is done. */
void tt__served_follow(tt_rpc_call *call, tt_future *future);

/* Send this thread's last error as the reply to call `id` of worker `to`, or as much of it as there is memory for. The
 * lock is held. */
tt_status tt__served_refuse(tt_rpc *rpc, int to, uint32_t id, tt_status why);

/* End a call, and free it. */
void tt__served_end(tt_rpc_call *call);

/* End a call in CALL_LATER without a reply, unless its future is about to reply. The lock is held, as in the next. */
void tt__served_drop(tt_rpc *rpc, tt_rpc_call *call);

/* Note that a thread begins to run the call, or that it does not any more. */
void tt__served_on_thread(tt_rpc *rpc, tt_rpc_call *call, bool on);

/* Take a call that begins, or ends, out of the counts of bytes, and give the caller credit for its window. */
void tt__served_uncount(tt_rpc *rpc, tt_rpc_call *call);

/* ---- served_call.c: the table of these calls ----
 * It finds a call by the caller's number, or by the value that the call makes. The lock is held. */

/* Add a call to rpc->serving and to the table. Errors: TT_ERR_MEMORY. */
tt_status tt__served_list(tt_rpc *rpc, tt_rpc_call *call);

/* Remove a call from both. */
void tt__served_unlist(tt_rpc *rpc, tt_rpc_call *call);

/* Find call `id` of worker `from`, or the call whose result is to be `value`, that of a reference; NULL: there is
 * none. */
tt_rpc_call *tt__serve_find(const tt_rpc *rpc, int from, uint32_t id);
tt_rpc_call *tt__serve_maker(const tt_rpc *rpc, const tt_future *value);

/* Return a number that no other call of this worker has. */
uint64_t tt__serve_key(const tt_rpc_call *call);

/* Free the table, which has no calls any more. */
void tt__served_table_free(tt_rpc *rpc);

#endif
