/* Tensors in values. They are libtutti's, so it gives the functions that know them when it is loaded; without it a
 * value holds none. */
#ifndef TT_RPC_TENSOR_HOOKS_H
#define TT_RPC_TENSOR_HOOKS_H

#include "base/export.h"

#include <tutti/rpc.h>

TT_BEGIN_DECLS

enum { TT__RPC_DIMS = 16 };

/* What travels of a tensor besides its elements, which are contiguous. */
typedef struct tt__rpc_form {
    uint8_t dtype, ndim, device, requires_grad; /* device: tt_device_type of the sender's */
    uint8_t device_index, unused[3];
    int64_t shape[TT__RPC_DIMS];
} tt__rpc_form;

/* Of distributed autograd: which context a message belongs to, and its number; 0: none. */
typedef struct tt__rpc_context {
    uint64_t context, message;
} tt__rpc_context;

typedef struct tt__rpc_tensor_hooks {
    /* Describe a tensor, and return where its elements lie, contiguous, in the host's memory; *keep: what release() is
     * called with once they are sent (a share of the tensor, or of a copy of it). NULL, recorded, on failure. */
    const void *(*describe)(struct tt_tensor *tensor, tt__rpc_form *form, size_t *bytes, void **keep);
    void (*release)(void *keep);

    /* Make a tensor to receive into; *data: where. NULL, recorded: the form is impossible (it comes from another
     * process, which may be hostile), it does not have `bytes` bytes, or there is no memory. */
    struct tt_tensor *(*make)(const tt__rpc_form *form, size_t bytes, void **data);

    /* Its elements have come. */
    tt_status (*made)(struct tt_tensor *tensor, const tt__rpc_form *form);

    struct tt_tensor *(*share)(struct tt_tensor *tensor);
    void (*free)(struct tt_tensor *tensor);

    /* The context of the calling thread; 0: none. Around every function that runs: enter() the context that it was
     * called in, or 0, and leave() it, with what was before. Tensors that the function makes have a scope in
     * between. */
    uint64_t (*current)(void);
    void (*enter)(tt_rpc *rpc, uint64_t context);
    void (*leave)(uint64_t before);

    /* Tensors of which some require gradients go to worker `to`, of a call or a reply made in `context->context`, which
     * is not 0: record it, and number the message, or leave ->message 0. */
    tt_status (*sending)(tt_rpc *rpc, int to, tt__rpc_context *context, struct tt_tensor *const *tensors,
                         int64_t count);

    /* Such a message, whose number is not 0, came from worker `from`, with these tensors in the same order; may put
     * others in their place. */
    tt_status (*received)(tt_rpc *rpc, int from, const tt__rpc_context *context, struct tt_tensor **tensors,
                          int64_t count);
} tt__rpc_tensor_hooks;

/* Give them, once, before the first tt_rpc is made: they stay. */
TT__EXPORT void tt__rpc_set_tensor_hooks(const tt__rpc_tensor_hooks *hooks);

/* Those that were given; NULL: there are none. */
const tt__rpc_tensor_hooks *tt__rpc_tensor_hooks_of(void);

/* ---- agent.c */

/* Keep `what` with the worker, until it is shut down; `end` frees it then, after the last call was served. And what was
 * kept. */
TT__EXPORT void tt__rpc_attach(tt_rpc *rpc, void *what, void (*end)(void *what));
TT__EXPORT void *tt__rpc_attached(const tt_rpc *rpc);

/* Call `fn` once for each worker that is lost from now on, with no lock held, in a thread that may wait for nothing but
 * may call tt_rpc_async(). One at a time. */
TT__EXPORT void tt__rpc_on_lost(tt_rpc *rpc, void (*fn)(tt_rpc *rpc, int id, const char *why, void *user), void *user);

TT_END_DECLS
#endif
