/* tutti/model_parallel.h: a model whose parts live in different processes, or on different devices of one.
 *
 * In one process the parts are moved to their devices (tt_module_to_device()), and tt_to_device() moves what passes
 * between them; gradients come back the same way. Between processes these two calls do it:
 *
 *   first stage                                          second stage
 *   tt_tensor *h = tt_module_forward(front, x);          tt_tensor *h = tt_recv_activation(group, 0);
 *   tt_tensor *sent = tt_send_activation(h, group, 1);   tt_tensor *loss = tt_mse_loss(tt_module_forward(back, h), y);
 *   tt_backward(sent);                                   tt_backward(loss);
 *
 * The backward pass of the second stage sends the gradient of what it received; that of the first stage receives it and
 * goes on from there. Each stage has its own optimizer, and may be wrapped by tt_ddp() on a group of its replicas.
 *
 * Order. Activations from one rank to another with one tag are received in the order in which they were sent. Gradients
 * find the activation that they belong to, in whatever order the stages run their backward passes. If an activation
 * requires a gradient, its sender never waits for a receiver that waits for the sender.
 *
 * Threads: as in parallel.h; both calls, and the backward passes that belong to them, are calls on the group. */
#ifndef TUTTI_MODEL_PARALLEL_H
#define TUTTI_MODEL_PARALLEL_H

#include <tutti/comm.h>
#include <tutti/nn.h>

TT_BEGIN_DECLS

typedef struct tt_send_activation_args {
    tt_tensor *x;    /* required: any dtype, layout and device */
    tt_group *group; /* required: borrowed as long as the record lives */
    int peer;        /* required: a rank of the group, another one */
    TT_OPTIONS;
    int tag;            /* 0 .. 2^30 - 1 */
    int64_t timeout_ms; /* of the sending, and of the wait for the gradient, each; 0 or less = the group's */
    const char *file;   /* the call site, which errors name; the macro fills it in */
    int line;
    char tt_end; /* not an option: see base.h */
} tt_send_activation_args;

/* Send x to rank `peer`, which receives it by tt_recv_activation(); its dtype and shape go with it. Returns a zero (f32
 * scalar): if x requires a gradient, tt_backward() of the zero receives that gradient from the peer, and goes on with
 * backward. The zero may be added to a loss, or to other such zeros, so that one pass does all.
 *   tt_tensor *sent = tt_send_activation(h, group, 1);
 * A large x may still be on its way when the call returns, if the peer does not take it for a tenth of a second; x must
 * not be changed until its gradient has come. If x requires no gradient, the call waits until the peer has taken x,
 * which may be changed then. So if two ranks send each other such large tensors before either receives, both wait until
 * TT_ERR_TIMEOUT, as with PyTorch's send and recv: let one of them receive first.
 * Memory: a result that no backward pass reaches keeps memory of x's size, for a gradient that may still come, until
 * the group is destroyed. Send tensors that need no gradient under TT_NO_GRAD.
 * NULL: TT_ERR_INVALID group, peer or tag; those of tt_send(). In backward: those of tt_recv(), which name what was
 * waited for; TT_ERR_TIMEOUT, too, where the peer has run no backward pass that reaches what it received. */
TT_API tt_tensor *tt_send_activation_with(const tt_send_activation_args *args, size_t size);

typedef struct tt_recv_activation_args {
    tt_group *group; /* required: borrowed as long as the tensor lives */
    int peer;        /* required */
    TT_OPTIONS;
    int tag;                 /* 0 .. 2^30 - 1 */
    const tt_device *device; /* where the result lies; NULL: "cpu" */
    int64_t timeout_ms;      /* of the receiving, and of sending the gradient, each; 0 or less = the group's */
    const char *file;        /* the call site, which errors name; the macro fills it in */
    int line;
    char tt_end; /* not an option: see base.h */
} tt_recv_activation_args;

/* Receive the next tensor that rank `peer` sends with this tag. If it requires a gradient there, and this thread
 * records, it is a leaf here: each backward pass that reaches it sends its gradient to the peer before tt_backward()
 * returns, and leaves it without one (tt_grad() is NULL). The peer then has to run backward as often.
 *   tt_tensor *h = tt_recv_activation(group, 0);
 * NULL: TT_ERR_INVALID group, peer or tag; TT_ERR_MISMATCH the peer sent something else; TT_ERR_MEMORY; those of
 * tt_recv(). In backward: those of tt_send(). */
TT_API tt_tensor *tt_recv_activation_with(const tt_recv_activation_args *args, size_t size);

#define TT_SEND_ACTIVATION_ARGS_INIT TT_ARGS_INIT
#define TT_RECV_ACTIVATION_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_send_activation(x_, group_, ...) \
    tt_send_activation_with(TT_CALL(tt_send_activation_args, .x = (x_), .group = (group_), .peer = __VA_ARGS__))
#define tt_recv_activation(group_, ...) \
    tt_recv_activation_with(TT_CALL(tt_recv_activation_args, .group = (group_), .peer = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
