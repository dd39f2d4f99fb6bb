/* The tape: what an operator records, and how its backward gives gradients on.
 *
 * A node is one recorded call. The tensor it made owns it; it holds references to the inputs it needs (and through them to their nodes), so
 * a record lives as long as its result does, or until backward has spent it, or until the scope it was recorded in ends. The nodes
 * of a thread form a list in the order of recording: the tape that backward walks from the loss to older ones. */
#ifndef TT_AUTOGRAD_NODE_H
#define TT_AUTOGRAD_NODE_H

#include "autograd/engine.h"
#include "tensor/tensor.h"

enum { TT__NODE_INPUTS = 3, TT__NODE_NUMBERS = 2 };

typedef struct tt__node tt__node;

/* An operator's backward: read node->grad, give every input that wants it its gradient through tt__grad_begin(). */
typedef tt_status (*tt__backward_fn)(tt__node *node);

struct tt__node {
    tt__history history; /* first: a tensor's history points here */
    const char *name;
    tt__backward_fn backward;
    tt_tensor *output;                 /* made by this call; owns the node */
    tt_tensor *input[TT__NODE_INPUTS]; /* references; NULL: none */
    bool wants[TT__NODE_INPUTS];       /* a gradient; as it was when the call was made */
    tt_tensor *saved;                  /* held by the node alone, or NULL */
    int64_t number[TT__NODE_NUMBERS];  /* what else backward needs */
    double factor;
    tt_tensor *grad; /* of the output, during backward: contiguous, output's shape */
    uint64_t order;  /* of recording, in this thread */
    bool reached;    /* by the backward pass under way */
    tt__node *older, *newer;
};

/* Does a call on these inputs have to be recorded? */
bool tt__wants_grad(int n, tt_tensor *const *inputs);
#define TT__WANTS_GRAD(...) \
    tt__wants_grad((int)(sizeof((tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), (tt_tensor *[]){__VA_ARGS__})

/* Record that `output` came from these inputs. NULL and an error if memory is out (output goes with its scope or is freed here). Otherwise the
 * node, for the operator to add what its backward needs. */
tt__node *tt__record(const char *name, tt__backward_fn backward, tt_tensor *output, int n, tt_tensor *const *inputs);
#define TT__RECORD(name, backward, output, ...)                                                           \
    tt__record(name, backward, output, (int)(sizeof((tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
               (tt_tensor *[]){__VA_ARGS__})

/* A node keeps `x`, made by the operator for its backward alone (out of scopes, freed with the record). */
void tt__node_save(tt__node *node, tt_tensor *x);

/* Drop what a node holds; its output stays, without history. */
void tt__node_sever(tt__node *node);

/* Give up on a tensor an operator made and will not return: free it if the caller would own it. Returns NULL. */
tt_tensor *tt__abandon(tt_tensor *x);

/* ---- giving gradients on, inside a backward ---- */

/* Where the gradient of an input goes: contiguous, in the input's shape. */
typedef struct tt__grad_to {
    void *data;      /* NULL: this input wants none, or memory is out (then the pass fails) */
    bool accumulate; /* add to what stands there; else overwrite */
} tt__grad_to;

bool tt__grad_wanted(const tt__node *node, int input);
tt__grad_to tt__grad_begin(tt__node *node, int input);

/* ---- leaves ---- */

typedef struct tt__hook {
    struct tt__hook *next;
    tt_grad_hook fn;
    void *user;
} tt__hook;

typedef struct tt__leaf {
    tt__history history; /* first */
    tt_tensor *tensor;
    tt_tensor *grad; /* NULL until first needed; held */
    bool defined;    /* grad has values */
    tt__hook *hooks; /* in the order they were registered */
    bool in_hooks;   /* one of them runs */
    uint64_t pass;   /* the backward pass that counted `pending` */
    int pending;     /* contributions still to come in it */
} tt__leaf;

/* The leaf of x, NULL if it is none. */
tt__leaf *tt__leaf_of(const tt_tensor *x);
tt__grad_to tt__leaf_grad_begin(tt__leaf *leaf);

#endif
