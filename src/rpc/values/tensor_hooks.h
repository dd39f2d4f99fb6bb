/* Tensors in values. Tensors are libtutti's, and src/rpc is in libtutti-comm, which knows nothing of them. So libtutti
 * sets these functions when it is loaded; without it no value has a tensor. */
#ifndef TT_RPC_TENSOR_HOOKS_H
#define TT_RPC_TENSOR_HOOKS_H

#include "base/export.h"

#include <tutti/rpc.h>

TT_BEGIN_DECLS

enum { TT__RPC_DIMS = 16 };

/* A tensor's form on the wire. The elements travel apart from it, contiguous. */
typedef struct tt__rpc_form {
    uint8_t dtype, ndim, device, requires_grad; /* device: the tt_device_type that it had where it was sent */
    uint8_t device_index, unused[3];
    int64_t shape[TT__RPC_DIMS];
} tt__rpc_form;

/* Distributed autograd: the context that a message belongs to, and its number in there; 0: none. */
typedef struct tt__rpc_context {
    uint64_t context, message;
} tt__rpc_context;

typedef struct tt__rpc_tensor_hooks {
    /* Describe a tensor, and return its elements, contiguous in the host's memory. *keep owns them (a share of the
     * tensor, or of a copy), and is given to release() when they have been sent. NULL, recorded, on failure. */
    const void *(*describe)(struct tt_tensor *tensor, tt__rpc_form *form, size_t *bytes, void **keep);
    void (*release)(void *keep);

    /* Make a tensor whose elements are to be received at *data. NULL, recorded: the form is impossible (another process
     * has sent it, which may be hostile), it has not `bytes` bytes, or there is no memory. */
    struct tt_tensor *(*make)(const tt__rpc_form *form, size_t bytes, void **data);

    /* Finish a tensor whose elements have been received. */
    tt_status (*made)(struct tt_tensor *tensor, const tt__rpc_form *form);

    struct tt_tensor *(*share)(struct tt_tensor *tensor);
    void (*free)(struct tt_tensor *tensor);

    /* Return the context of the calling thread; 0: none. */
    uint64_t (*current)(void);

    /* Called before and after every function that other workers call: enter() with the context of the call or 0,
     * leave() with what current() was before. Between them the function's tensors have a scope of their own. */
    void (*enter)(tt_rpc *rpc, uint64_t context);
    void (*leave)(uint64_t before);

    /* Record that tensors, of which some require a gradient, are about to be sent to worker `to`, by a call or a reply
     * in `context->context`, which is not 0. Sets ->message to the message's number; 0: it need not be recorded. */
    tt_status (*sending)(tt_rpc *rpc, int to, tt__rpc_context *context, struct tt_tensor *const *tensors,
                         int64_t count);

    /* Record that such a message, whose number is not 0, came from worker `from` with these tensors, in the same order.
     * May replace them by others. */
    tt_status (*received)(tt_rpc *rpc, int from, const tt__rpc_context *context, struct tt_tensor **tensors,
                          int64_t count);
} tt__rpc_tensor_hooks;

/* Set the functions, once, before the first tt_rpc is made. `hooks` must stay. */
TT__EXPORT void tt__rpc_set_tensor_hooks(const tt__rpc_tensor_hooks *hooks);

/* Return the functions that were set; NULL: none were. */
const tt__rpc_tensor_hooks *tt__rpc_tensor_hooks_of(void);

/* ---- agent.c */

/* Attach `what` to the worker; tt_rpc_shutdown() frees it by `end`, after the last call was served. And return what was
 * attached, or NULL. */
TT__EXPORT void tt__rpc_attach(tt_rpc *rpc, void *what, void (*end)(void *what));
TT__EXPORT void *tt__rpc_attached(const tt_rpc *rpc);

/* Call `fn` once for each worker that is lost from now on, one after the other, in a thread that holds no lock. `fn`
 * may call tt_rpc_async(), but must not wait. */
TT__EXPORT void tt__rpc_on_lost(tt_rpc *rpc, void (*fn)(tt_rpc *rpc, int id, const char *why, void *user), void *user);

TT_END_DECLS
#endif
