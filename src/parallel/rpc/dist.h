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
 * A message, that is a send and its receipt, is known by its sender and a number. Passes over a
 * context are described in dist_part.c. */
#ifndef TT_PARALLEL_RPC_DIST_H
#define TT_PARALLEL_RPC_DIST_H

#include "autograd/backward.h"
#include "rpc/values/tensor_hooks.h"

#include <tutti/rpc_training.h>

#include <pthread.h>

typedef struct tt__dist tt__dist;
typedef struct tt__dist_part tt__dist_part;
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
    tt__pointer_map at;          /* leaf -> its index in `leaves` and `grads` */
    tt_tensor **leaves, **grads; /* (count) references */
    int64_t count, room;
} tt__dist_grads;

struct tt__dist_context {
    tt__dist_context *next; /* in its list of dist->contexts; next and refs are under dist->lock */
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
    tt_scope **scopes; /* of functions called in the context; they keep the functions' tensors */
    int64_t scope_count, scope_room;
    int *users; /* on the owner: workers that have an entry */
    int64_t user_count, user_room;

    /* The current pass. */
    tt__dist_part *part;                                        /* or NULL */
    int leader;                                                 /* the worker that leads it */
    void (*end_part)(tt__dist_context *context, uint64_t pass); /* tt__dist_part_end() */
};

/* TT__DIST_KNOWN_MAX: how many contexts of one owner are known here at a time, as another worker may begin any
 * number. */
enum { TT__DIST_PLACES = 4096 /* a power of two */, TT__DIST_KNOWN_MAX = 1 << 14 };

struct tt__dist {
    tt_rpc *rpc;
    pthread_mutex_t lock;
    tt__dist_context *contexts[TT__DIST_PLACES]; /* by id; this and the next two are under lock */
    uint32_t *known;                             /* how many contexts of an owner there are, by owner */
    int known_room;
    _Atomic uint64_t last_message, last_pass;
    pthread_mutex_t stepping; /* held by an optimizer's step */
};

enum { TT__DIST_ID_BITS = 40 /* of a context's id, below its owner's */ };

static inline int tt__dist_owner(uint64_t context) { return (int)(context >> TT__DIST_ID_BITS); }

/* ---- dist_context.c ---- */

/* Return the state of distributed autograd on a worker; the first call makes it. NULL, recorded: no memory, or `rpc` is
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

uint64_t tt__dist_current(void);

/* ---- dist_part.c ---- */

/* A place where gradients enter the graph on this worker: a message that it sent, or the roots. */
typedef struct tt__dist_source {
    tt_node *node;         /* a reference */
    int to;                /* -1: the roots */
    tt_tensor **gradients; /* references; NULL: they have not come */
    bool given;            /* they were given to the walk */
} tt__dist_source;

/* A receipt of the context, as the pass needs it. */
typedef struct tt__dist_needed {
    bool needed;   /* the roots depend on it */
    int64_t waits; /* how many of its leaves have no final gradient yet */
} tt__dist_needed;

typedef enum tt__dist_state { TT__DIST_FINDING, TT__DIST_WALKS, TT__DIST_DONE, TT__DIST_FAILED } tt__dist_state;

/* Guarded by the context's lock, except `open`, which belongs to the thread that walks. */
struct tt__dist_part {
    int refs;
    tt__dist_context *context; /* a reference */
    uint64_t pass;
    int leader;
    bool retain;
    tt__dist_state state;
    tt__dist_source *sources;
    int64_t source_count, source_room;
    int64_t *source_at; /* (send_count) 1 + the source of each of context->sends; 0: the roots don't depend on it */
    int64_t send_count;
    tt__dist_needed *receipts; /* (receipt_count) of each of context->receipts */
    int64_t receipt_count;
    tt__open_pass *open;
    bool walking;        /* a thread walks */
    bool again;          /* gradients have come meanwhile, so it walks once more */
    int64_t parcels;     /* messages of its gradients that have not ended */
    tt_future *finished; /* answers the leader's finish(); NULL: it has not asked, or was answered */
    tt_status status;    /* of a part that failed, with its text */
    char *text;
};

/* Has the part ended, so that nothing of it can fail any more? */
static inline bool tt__dist_part_is_done(const tt__dist_part *part) {
    return part->state == TT__DIST_DONE && !part->parcels;
}

/* A message by its sender and number. */
typedef struct tt__dist_message {
    int64_t from, number;
} tt__dist_message;

typedef struct tt__dist_messages {
    tt__dist_message *list;
    int64_t count, room;
} tt__dist_messages;

static inline tt_status tt__dist_messages_add(tt__dist_messages *m, int64_t from, int64_t number) {
    if (!tt__dist_room(&m->list, m->count, &m->room, sizeof *m->list))
        return TT_ERR_MEMORY;
    m->list[m->count++] = (tt__dist_message){from, number};
    return TT_OK;
}

/* Begin this worker's part of a pass, or find it. Takes a reference for the caller. NULL, recorded: TT_ERR_STATE
 * another pass over the context is under way; TT_ERR_MEMORY. */
tt__dist_part *tt__dist_part_begin(tt__dist_context *context, uint64_t pass, int leader, bool retain);

/* Find the part of this pass, and take a reference for the caller. NULL, recorded: TT_ERR_NOT_FOUND. */
tt__dist_part *tt__dist_part_find(tt__dist_context *context, uint64_t pass);

/* Add the roots, of one element each, as a source whose gradients are 1. The messages that they depend on are added to
 * `found`. */
tt_status tt__dist_part_roots(tt__dist_part *part, tt_tensor *const *roots, int64_t count, tt__dist_messages *found);

/* Add messages that this worker has sent as sources. The messages that they depend on are added to `found`. Errors:
 * TT_ERR_NOT_FOUND there is no such send; TT_ERR_STATE it was named before, or its record was freed; TT_ERR_MEMORY. */
tt_status tt__dist_part_reach(tt__dist_part *part, const int64_t *numbers, int64_t count, tt__dist_messages *found);

/* Walk the graph as far as the gradients that have come allow. */
void tt__dist_part_walk(tt__dist_part *part);

/* Take a part that has ended out of its context, which is locked, so that another pass can begin. True: it was there;
 * the caller drops its reference. */
bool tt__dist_part_detach(tt__dist_part *part);

/* End the part of this pass (0: of any) with this thread's last error: the context has ended, or the leader was
 * lost. */
void tt__dist_part_end(tt__dist_context *context, uint64_t pass);

void tt__dist_part_unref(tt__dist_part *part);

/* ---- functions that workers call of each other; rpc_training.c has those of a pass, and registers all ---- */

#define TT__TRAINING_FUNCTIONS(X)                                                              \
    X(touch, "tutti.autograd.touch", "(int context) -> bool")                                  \
    X(release, "tutti.autograd.release", "(int context)")                                      \
    X(make_optimizer, "tutti.optim.make", "(text kind, map options, list params) -> rref")     \
    X(step_optimizer, "tutti.optim.step", "(rref optimizer, int context)")                     \
    X(set_option, "tutti.optim.set_option", "(rref optimizer, text name, float value)")        \
    X(check_module, "tutti.module.check", "(rref module)")                                     \
    X(forward, "tutti.module.forward", "(rref module, int results, tensor... inputs) -> list") \
    X(parameters, "tutti.module.parameters", "(rref module) -> list")                          \
    X(train, "tutti.module.train", "(rref module, bool training)")

#define TT__DECLARE_SERVED(function, name, signature) tt_status tt__serve_##function(tt_rpc_call *call);
TT__TRAINING_FUNCTIONS(TT__DECLARE_SERVED)

/* ---- what the public functions of the same names do ---- */

/* Make a value of a tensor, which is borrowed. Return the tensor of a value, or NULL. */
static inline tt_rpc_value tt__tensor_value(tt_tensor *x) {
    tt_rpc_value value = tt_rpc_none();
    if (x) {
        value.kind = TT_RPC_TENSOR;
        value.tensor = x;
    }
    return value;
}

static inline tt_tensor *tt__value_tensor(const tt_rpc_value *value) {
    return value && value->kind == TT_RPC_TENSOR ? value->tensor : NULL;
}

tt_tensor *tt__take_tensor(tt_rpc_value *value);
tt_status tt__dist_begin(int64_t *context, tt_rpc *rpc);
tt_status tt__return_module(tt_rpc_call *call, tt_module *module);
tt_status tt__remote_module_new(const tt_remote_module_new_args *a);
tt_status tt__dist_optimizer_new(const tt_dist_optimizer_new_args *a);

extern const tt__rpc_tensor_hooks tt__tensor_hooks;

/* ---- what the public functions of the same names do */

#endif
