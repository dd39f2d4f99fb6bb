/* The contexts of distributed autograd that a worker knows, and its part of the passes over them.
 *
 * A context's id holds the worker that began it, its owner. Another worker that comes to know a context tells the owner
 * (touch), which answers whether it still lives, and tells all of them when it ends (release). So calls that outlive
 * their context leave nothing, and neither do owners that are lost.
 *
 * When tensors that require gradients leave a worker in a context, a send is noted: a record, whose inputs are the
 * tensors, and whose results are what arrives. Where they arrive they are leaves, and a receipt is noted. A message is
 * known by the sender and its number. */
#ifndef TT_PARALLEL_RPC_DIST_H
#define TT_PARALLEL_RPC_DIST_H

#include "autograd/open_pass.h"
#include "rpc/tensor_hooks.h"

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
    tt_tensor **leaves; /* references; NULL: requires none */
} tt__dist_receipt;

/* Gradients of a context, by leaf. */
typedef struct tt__dist_grads {
    tt__pointer_map at;
    tt_tensor **leaves, **grads; /* references */
    int64_t count, room;
} tt__dist_grads;

struct tt__dist_context {
    tt__dist_context *next; /* of the worker; with */
    int refs;               /* under its lock */
    tt__dist *dist;
    uint64_t id;
    pthread_mutex_t lock; /* of what follows */
    bool ended;
    tt__dist_send *sends; /* by rising number */
    int64_t send_count, send_room;
    tt__dist_receipt *receipts;
    int64_t receipt_count, receipt_room;
    tt__pointer_map receipt_at; /* its number here, by leaf */
    tt__dist_grads grads;
    tt_scope **scopes; /* of functions that were called in it */
    int64_t scope_count, scope_room;
    int *users; /* of the owner's: workers that know it */
    int64_t user_count, user_room;
    tt__dist_part *part; /* of the pass that is under way; NULL: none is. With */
    int leader;          /* the worker that leads it, and what ends it here, with this thread's last error */
    void (*end_part)(tt__dist_context *context, uint64_t pass); /* pass 0: whichever it is */
};

struct tt__dist {
    tt_rpc *rpc;
    pthread_mutex_t lock;
    tt__dist_context *contexts; /* under lock */
    _Atomic uint64_t last_context, last_message, last_pass;
    pthread_mutex_t stepping; /* held by an optimizer's step */
};

enum { TT__DIST_ID_BITS = 40 /* of a context's id, below its owner's */ };

static inline int tt__dist_owner(uint64_t context) { return (int)(context >> TT__DIST_ID_BITS); }

/* This worker's contexts. NULL, recorded: no memory, or `rpc` is NULL. */
tt__dist *tt__dist_of(tt_rpc *rpc);

/* Find a context, with a reference for the caller; NULL, recorded as TT_ERR_NOT_FOUND by `who`. */
tt__dist_context *tt__dist_find(tt__dist *dist, const char *who, int64_t context);

/* The same; one of another worker's that is not known yet becomes known. NULL, not recorded: it has ended, or there is
 * no memory. */
tt__dist_context *tt__dist_meet(tt__dist *dist, uint64_t context);

void tt__dist_unref(tt__dist_context *context);

/* Begin a call to worker `to`, outside of any context. `fn` (may be NULL) is called when it is done, but not if this
 * fails. What large values borrow must last until then. */
tt_status tt__dist_call(tt__dist *dist, int to, const char *function, tt_rpc_values args, tt_future_fn fn, void *user);

/* Be in no context in this thread; what it was in before, for tt__dist_reenter(). */
uint64_t tt__dist_outside(void);
void tt__dist_reenter(uint64_t before);

/* Make room for one more element of an array; false, recorded: no memory. */
bool tt__dist_room(void *array, int64_t count, int64_t *room, size_t size);

/* Add a gradient (a reference is taken) to those of a context, which the caller has locked. */
tt_status tt__dist_add_grad(tt__dist_context *context, tt_tensor *leaf, tt_tensor *gradient);

/* Find a message that was sent; NULL: there is none. The context is locked. */
const tt__dist_send *tt__dist_find_send(const tt__dist_context *context, uint64_t number);

/* A record whose inputs are these tensors and whose results are the same, as others see them. It belongs to no scope:
 * the caller has the one reference. NULL, recorded: no memory. */
tt_node *tt__dist_node(tt_tensor *const *tensors, int64_t count);

/* ---- what libtutti tells the workers: the hooks of rpc/tensor_hooks.h (rpc_tensors.c) */

extern const tt__rpc_tensor_hooks tt__tensor_hooks;

uint64_t tt__dist_current(void);
void tt__dist_enter(tt_rpc *rpc, uint64_t context);
void tt__dist_leave(uint64_t before);
tt_status tt__dist_sending(tt_rpc *rpc, int to, tt__rpc_context *context, tt_tensor *const *tensors, int64_t count);
tt_status tt__dist_received(tt_rpc *rpc, int from, const tt__rpc_context *context, tt_tensor **tensors, int64_t count);

#endif
