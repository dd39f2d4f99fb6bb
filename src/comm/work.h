/* Works and algorithms.
 *
 * Every call is a work. An algorithm is a machine: next() does what it can without waiting and says what has to happen
 * before it is called again. The same machine serves synchronous calls (the caller waits between its steps),
 * asynchronous ones (any call that makes progress runs it), shared memory and messages. It never blocks. It may never
 * be called again, so it holds nothing that it must release: scratch memory belongs to the work.
 *
 *   QUEUED     not yet published: an earlier work of the group is not agreed on, or still uses the slots
 *   PUBLISHED  shared memory: published; not all ranks have arrived
 *   RUNNING    agreed (shared memory: all words agree and the algorithm is chosen from all words; messages: at once,
 *              words travel in the keys)
 *   DONE       complete: status valid
 *
 * tt__work_complete() (native/end.c) completes a work, exactly once, and nothing else sets `done`. It is called when
 * the machine is through, or when the group fails, is aborted or is destroyed; with the world's lock held, or by the
 * one thread that runs a synchronous call alone. */
#ifndef TT_COMM_WORK_H
#define TT_COMM_WORK_H

#include "comm/message/message.h"
#include "comm/record/recorder.h"

#include <tutti/backend.h>

/* What next() returns. */
typedef enum tt__next {
    TT__NEXT_DONE,
    TT__NEXT_WAIT,         /* until what it has written to work->wait has happened */
    TT__NEXT_CALL,         /* make work->child_call, a call on an inner group, and wait for its end */
    TT__NEXT_LOST_MESSAGE, /* a message failed: the driver finds out why */
    TT__NEXT_FAILED,       /* it has recorded an error, with which the group fails */
    TT__NEXT_REFUSED       /* it has recorded an error, but the group lives on; scratch memory begins with the text */
} tt__next;

/* What a call publishes on shared memory. */
typedef struct tt__offer {
    const void *payload; /* travels with the arrival word */
    size_t bytes;        /* of the payload, up to TT__INLINE_MAX */

    /* A buffer that peers may use in place if all of it lies in this process's heap; else they get copies. */
    const void *symmetric;
    size_t extent;
} tt__offer;

typedef struct tt__algorithm {
    const char *name; /* "ring": for --algorithm, tables, the recorder */
    tt_op op;
    bool shared;    /* runs on shared memory (after ARRIVAL), else on messages */
    bool own_order; /* sums in another order than the documented one: never chosen by itself */
    bool children;  /* makes calls on inner groups: later works of the group wait until it is done */
    bool (*serves)(const tt_group *group, const tt_call *call); /* NULL: any call of its op */
    bool (*serves_words)(const tt_work *work); /* shared memory: may look at all ranks' words, too. NULL: any */
    tt__next (*next)(tt_work *work);
    /* Called when the deadline has passed: may next() still go on? NULL: no, the group fails. */
    bool (*expire)(tt_work *work);
} tt__algorithm;

/* What a work waits for. */
typedef struct tt__wait {
    enum { TT__ARRIVAL, TT__STEP, TT__MESSAGES, TT__CHILD } what;
    uint32_t target;
    int next, end; /* ARRIVAL, STEP: group ranks next..end-1 have arrived at call `target`, or finished step `target` */
    /* MESSAGES: work->pending is `target` or less. CHILD: work->child is done. */
} tt__wait;

typedef enum tt__work_phase { TT__QUEUED, TT__PUBLISHED, TT__RUNNING, TT__DONE } tt__work_phase;

/* A call that a machine makes on an inner group. */
typedef struct tt__child_call {
    tt_group *group;
    tt_call call;
} tt__child_call;

struct tt_work {
    tt_work *next; /* in the group's queue, or among its free works */
    tt_group *group;
    tt_call call;
    tt_work *parent; /* whose child it is, or NULL */
    const tt__algorithm *algorithm;
    const tt__algorithm *packed_as; /* the all_reduce of a coalesced call's packed buffers, on messages */
    uint32_t seq, word;
    tt__work_phase phase;
    int stage;      /* the machine's own, 0 at first */
    uint32_t steps; /* how often next() was called */
    bool hidden;    /* not a call of the program's own */
    bool symmetric; /* all ranks' buffers are symmetric */
    bool children;  /* its algorithm makes calls on inner groups */
    bool part_done; /* only waiting for others is left: slots and steps are free for the next call */
    bool owned;     /* by a caller, until tt_work_free() */
    bool linked;    /* it is in one of its group's lists */
    bool promised;  /* on a device: a stream of the program waits for its result */
    _Atomic bool done;
    tt_status status;
    struct tt__callback *callbacks; /* to be called when it is done: callback.h */
    struct tt__landing *landing;    /* of an owned work: its owner waits for this, too; or NULL */
    int waiters;                    /* threads that wait for it; they keep the work */
    uintptr_t waiter;               /* the thread that began to wait last */
    bool refused;                   /* see TT__NEXT_REFUSED */
    int source;
    int64_t deadline_ms;
    int64_t looked_ms;       /* when its peers were last checked */
    tt__record_slot *record; /* in the recorder; of a child, its parent's */
    uint32_t record_number;

    tt__wait wait;            /* set by next() before TT__NEXT_WAIT */
    _Atomic uint32_t pending; /* messages under way */
    tt__message *messages;
    size_t message_count; /* room, kept when the work is recycled */
    size_t message_used;
    void *scratch; /* 64-byte aligned; kept when the work is recycled */
    size_t scratch_bytes;
    void *lists; /* copies of the call's arrays; kept when the work is recycled */
    size_t lists_bytes;
    uint64_t state[16];        /* the machine's own variables: a struct that fits */
    tt__child_call child_call; /* set by next() before TT__NEXT_CALL */
    tt_work *child;            /* that call, which this work waits for */
};

/* Is this a call that the library makes for itself? It names its purpose instead of a source file, and has no line. */
static inline bool tt__is_librarys(const tt_call *call) { return call->file && !call->line; }

/* The machine's own variables. */
#define TT__STATE(type, work) ((type *)(void *)(work)->state)

/* Operation i of a send, a receive, or a batch of them. */
static inline tt_p2p_op tt__p2p_op_of(const tt_call *call, size_t i) {
    if (call->op == TT_OP_BATCH_ISEND_IRECV)
        return call->ops[i];
    return (tt_p2p_op){.is_recv = call->op == TT_OP_RECV,
                       .send = call->send,
                       .recv = call->recv,
                       .count = call->count,
                       .dtype = call->dtype,
                       .peer = call->root,
                       .tag = call->tag};
}

/* ---- work.c */

/* Take a free or a new work for `call`, whose lists are copied; NULL: no memory. Not queued anywhere. Its owner gives
 * it back. */
tt_work *tt__work_take(tt_group *group, const tt_call *call);
void tt__work_give_back(tt_work *work);

/* An owner, waiter, parent or list lets go of the work. The last of them gives it back, if it is done. */
void tt__work_let_go(tt_work *work);

/* Free the works of a group that ends. */
void tt__works_free(tt_work *list);

/* Put the work into the group's queue; sends and receives among its unordered works. */
void tt__work_enqueue(tt_work *work);

/* Take works that are done out of the group's lists; those that nobody owns can be used again. From here on another
 * thread may see the group as idle, so the caller touches no work of it any more. */
void tt__works_unlink(tt_group *group);

/* Record again the error of a work that is done and failed. Returns its status. */
tt_status tt__work_error(const tt_work *work);

/* Make room for at least `bytes` in work->scratch. TT_ERR_MEMORY. */
tt_status tt__work_scratch(tt_work *work, size_t bytes);

#endif
