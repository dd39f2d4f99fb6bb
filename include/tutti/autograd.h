/* tutti/autograd.h: operators with gradients, the tape, backward.
 *
 * An operator whose input requires a gradient is recorded on the thread's tape, which belongs to the current scope.
 * tt_backward() walks it once, from the loss; it is then spent. Operators compute in f32; each also has a plain f64 reference, used for
 * f64 inputs. Inputs of one call must have one dtype unless said otherwise (TT_ERR_DTYPE). See tensor.h for errors and ownership. */
#ifndef TUTTI_AUTOGRAD_H
#define TUTTI_AUTOGRAD_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* ---- leaves ---- */

/* Make x (f32 or f64, made by no recorded operator) a leaf that collects a gradient, or no longer. Returns x; NULL and an error otherwise. */
TT_API tt_tensor *tt_requires_grad_(tt_tensor *x, bool requires_grad);
TT_API bool tt_requires_grad(const tt_tensor *x);

/* The gradient of a leaf: a tensor of x's shape that belongs to x, or NULL if none was computed since it was made or zeroed. */
TT_API tt_tensor *tt_grad(const tt_tensor *x);

/* Forget the gradient: tt_grad is NULL until the next backward (PyTorch: zero_grad(set_to_none=True)). Its memory is reused. */
TT_API void tt_zero_grad(tt_tensor *x);

/* Called when the gradient of leaf x is final in a backward pass, in the thread that runs it. A failing hook ends the pass, with
 * its status. It must not end a scope that was open when the pass began. PyTorch: register_post_accumulate_grad_hook. Hooks stay until x is
 * freed; `user` is borrowed. */
typedef tt_status (*tt_grad_hook)(tt_tensor *x, void *user);
TT_API tt_status tt_register_post_accumulate_grad_hook(tt_tensor *x, tt_grad_hook hook, void *user);

/* ---- the tape ---- */

/* Gradients of `loss` (one element) with respect to all leaves, added to their tt_grad. When it returns, hooks and
 * end-of-pass callbacks (gradient averaging) have run. Errors: loss NULL: the scope's first error, which is then cleared; TT_ERR_SHAPE
 * not one element; TT_ERR_STATE nothing in it requires a gradient, or its tape is spent; what a hook returned. */
TT_API tt_status tt_backward(tt_tensor *loss);

/* x's data without its history; shares storage. */
TT_API tt_tensor *tt_detach(tt_tensor *x);

/* Between begin and end nothing is recorded in this thread; they nest. PyTorch: no_grad. */
TT_API bool tt_no_grad_begin(void);
TT_API void tt_no_grad_end(bool before); /* what begin returned */
#if defined(__GNUC__) && !defined(__cplusplus)
TT_API void tt_no_grad_cleanup(const bool *before);
#define TT_NO_GRAD __attribute__((cleanup(tt_no_grad_cleanup), unused)) const bool tt_no_grad_ = tt_no_grad_begin()
#endif

/* ---- operators; B batch, C channels, K outputs, V classes ---- */

/* Element by element, with PyTorch's broadcasting. */
TT_API tt_tensor *tt_add(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_sub(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_mul(tt_tensor *a, tt_tensor *b);

/* x times a number. */
TT_API tt_tensor *tt_scale(tt_tensor *x, double factor);

/* Mean / sum of all elements, a scalar. */
TT_API tt_tensor *tt_mean(tt_tensor *x);
TT_API tt_tensor *tt_sum(tt_tensor *x);

/* a (M,K) times b (K,N) -> (M,N). */
TT_API tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b);

/* x (B...,C), weight (K,C), bias (K) or NULL -> (B...,K) = x weight^T + bias. */
TT_API tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias);

/* max(x, 0). NaN stays NaN. */
TT_API tt_tensor *tt_relu(tt_tensor *x);

/* x - log sum exp x along dim (negative counts from the end). */
TT_API tt_tensor *tt_log_softmax(tt_tensor *x, int dim);

/* log_prob (B,V), target i64 (B) in 0..V-1 -> mean of -log_prob[b][target[b]]. TT_ERR_INVALID names a target out of range. */
TT_API tt_tensor *tt_nll_loss(tt_tensor *log_prob, tt_tensor *target);

/* logits (B,V), target i64 (B): nll_loss(log_softmax(logits, 1), target), in one step. */
TT_API tt_tensor *tt_cross_entropy(tt_tensor *logits, tt_tensor *target);

/* Mean of (input - target)^2 over all elements; shapes must be equal. */
TT_API tt_tensor *tt_mse_loss(tt_tensor *input, tt_tensor *target);

TT_END_DECLS
#endif
