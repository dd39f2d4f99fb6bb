/* The contexts of distributed autograd that a worker has, and what is recorded in them.
 *
 * The worker that began a context is its owner, and the context's id contains the owner's id. When a call in a context
 * first reaches another worker, that one makes an entry and tells the owner (touch). The owner answers whether the
 * context still lives, and tells all these workers when it ends (release). So a call that outlives its context leaves
 * no entry. If the owner is lost, the others end the context themselves.
 *
 *   worker A                                            worker B
 *   tensors that require gradients are sent:   -------> they arrive as leaves:
 *   a tt__dist_send, with a node of the graph           a tt__dist_receipt, with these leaves
 *   gradients enter the graph at this node     <------- a pass has computed the gradients of these leaves
 *
 * A message, that is a send and its receipt, is known by its sender and a number. dist_part.h has the passes. */
#ifndef TT_PARALLEL_RPC_DIST_H
#define TT_PARALLEL_RPC_DIST_H

#include "autograd/backward.h"
#include "rpc/values/tensor_hooks.h"

#include <tutti/rpc_training.h>

#include <pthread.h>

typedef struct tt__dist tt__dist;
typedef struct tt__dist_part tt__dist_part; /* dist_part.h */
typedef struct tt__dist_context tt__dist_context;

typedef struct tt__dist_send {
    uint64_t number;
    int to;
    tt_node *node; /* a reference */
} tt__dist_send;

typedef struct tt__dist_receipt {
    uint64_t number;
    int from;
    int64_t count;
    tt_tensor **leaves; /* (count) references; NULL: that tensor requires no gradient */
} tt__dist_receipt;

/* The gradients of a context. */
typedef struct tt__dist_grads {
    tt__pointer_map at;          /* leaf -> its index in the next two */
    tt_tensor **leaves, **grads; /* (count) references */
    int64_t count, room;
} tt__dist_grads;

struct tt__dist_context {
    tt__dist_context *next; /* in its place of dist->contexts; under dist->lock, as is */
    int refs;
    tt__dist *dist;
    uint64_t id;
    pthread_mutex_t lock; /* guards all that follows */
    bool ended;
    tt__dist_send *sends; /* by rising number */
    int64_t send_count, send_room;
    tt__dist_receipt *receipts;
    int64_t receipt_count, receipt_room;
    tt__pointer_map receipt_at; /* leaf -> the index of its receipt */
    tt__dist_grads grads;
    tt_scope **scopes; /* of functions that were called in the context: they keep the functions' tensors */
    int64_t scope_count, scope_room;
    int *users; /* on the owner: the workers that have an entry */
    int64_t user_count, user_room;

    /* The pass that is under way. */
    tt__dist_part *part;                                        /* NULL: none is */
    int leader;                                                 /* the worker that leads it */
    void (*end_part)(tt__dist_context *context, uint64_t pass); /* tt__dist_part_end() */
};

/* Another worker may begin as many contexts as it likes: of one owner no more than so many are known here at a time. */
enum { TT__DIST_PLACES = 4096 /* a power of two */, TT__DIST_KNOWN_MAX = 1 << 14 };

struct tt__dist {
    tt_rpc *rpc;
    pthread_mutex_t lock;
    tt__dist_context *contexts[TT__DIST_PLACES]; /* by id; under lock, as are */
    uint32_t *known;                             /* how many contexts of an owner there are, by owner */
    int known_room;
    _Atomic uint64_t last_message, last_pass;
    pthread_mutex_t stepping; /* held by an optimizer's step */
};

enum { TT__DIST_ID_BITS = 40 /* of a context's id, below its owner's */ };

static inline int tt__dist_owner(uint64_t context) { return (int)(context >> TT__DIST_ID_BITS); }

/* Return what distributed autograd has of a worker; made at the first call. NULL, recorded: no memory, or `rpc` is
 * NULL. */
tt__dist *tt__dist_of(tt_rpc *rpc);

/* Find a context, and take a reference for the caller. NULL, recorded for function `who`: TT_ERR_NOT_FOUND. */
tt__dist_context *tt__dist_find(tt__dist *dist, const char *who, int64_t context);

/* Find a context, or make an entry for one of another worker's and tell its owner. Takes a reference for the caller.
 * NULL, not recorded: it has ended, or there is no memory. */
tt__dist_context *tt__dist_meet(tt__dist *dist, uint64_t context);

void tt__dist_unref(tt__dist_context *context);

/* Call a function of worker `to` outside of any context, without waiting. `fn` (may be NULL) is called when the call is
 * done, unless this fails. Tensors and large bytes in `args` must last until then. */
tt_status tt__dist_call(tt__dist *dist, int to, const char *function, tt_rpc_values args, tt_future_fn fn, void *user);

/* Leave the context of this thread and return its id; enter it again. */
uint64_t tt__dist_outside(void);
void tt__dist_reenter(uint64_t before);

/* Make room for one more element in the array at *array, which has `count`, of `size` bytes each. False, recorded: no
 * memory. */
bool tt__dist_room(void *array, int64_t count, int64_t *room, size_t size);

/* Add a gradient of a leaf to those of a context, which the caller has locked. A reference is taken. Errors:
 * TT_ERR_MEMORY. */
tt_status tt__dist_add_grad(tt__dist_context *context, tt_tensor *leaf, tt_tensor *gradient);

/* Find the send with this number; NULL: there is none. The context is locked. */
const tt__dist_send *tt__dist_find_send(const tt__dist_context *context, uint64_t number);

/* Make a node of the graph whose inputs are these tensors, and through which gradients pass unchanged. It belongs to no
 * scope: the caller has its only reference. NULL, recorded: no memory. */
tt_node *tt__dist_node(tt_tensor *const *tensors, int64_t count);

/* ---- the hooks of rpc/values/tensor_hooks.h, and those of them that dist_context.c and dist_record.c have */

extern const tt__rpc_tensor_hooks tt__tensor_hooks;

uint64_t tt__dist_current(void);
void tt__dist_enter(tt_rpc *rpc, uint64_t context);
void tt__dist_leave(uint64_t before);
tt_status tt__dist_sending(tt_rpc *rpc, int to, tt__rpc_context *context, tt_tensor *const *tensors, int64_t count);
tt_status tt__dist_received(tt_rpc *rpc, int from, const tt__rpc_context *context, tt_tensor **tensors, int64_t count);

#endif
