/* tutti/graph.h: graphs: a training step that a device captures once and then repeats, without the host's part in it.
 * This pays where kernels are so small that launching one takes the host longer than the kernel runs. PyTorch:
 * torch.cuda.CUDAGraph, torch.cuda.graph. */
#ifndef TUTTI_GRAPH_H
#define TUTTI_GRAPH_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* A captured function. One thread uses it at a time. */
typedef struct tt_graph tt_graph;

/* What is captured. A scope is open. It reads and writes tensors that outlive the graph: inputs are copied into some
 * before each replay, and results are copied into some (tt_copy()), or kept (tt_keep()).
 *   static tt_status step(void *user) {
 *       struct training *t = user;
 *       tt_tensor *loss = tt_cross_entropy(tt_module_forward(t->model, t->x), t->y);
 *       tt_optimizer_zero_grad(t->adam);
 *       if (tt_backward(loss) || tt_optimizer_step(t->adam))
 *           return tt_last_status();
 *       return tt_copy(t->loss, tt_detach(loss));
 *   } */
typedef tt_status (*tt_graph_fn)(void *user);

/* Run `function` `warmup` times, then once more to capture what this thread enqueues on `device`, which computes
 * nothing. The function's host code runs in these calls alone; of it a replay repeats only this:
 *   - dropout draws from its generator, in the same order, so that replays give the bits that calls would give. The
 *     thread's default generator is that of the thread that replays; another one must outlive the graph;
 *   - a step of an optimizer counts, with the learning rate and other options that the optimizer has at the replay.
 *     Each parameter must have been stepped before the capture, in a warm-up or by the program;
 *   - tt_grad_scaler_scale() takes the scale at the replay. The rest of a scaler's work, which the host decides on,
 *     must follow the replay: tt_grad_scaler_step(), tt_grad_scaler_update();
 *   - after a replay a leaf has a gradient if it had one after the captured call. In the function call
 *     tt_optimizer_zero_grad() before tt_backward().
 * All other numbers that the host passes to calls, and shapes, are repeated as they were. Work on other devices is
 * done at once and not captured; a graph without any work is told in the log (TT_LOG_WARNING), as PyTorch does.
 *
 * Memory that is taken during the capture, and what is freed in it, is the graph's until tt_graph_free(): no other
 * tensor lies there (tt_device_memory: allocated). Optimizers, scalers and tensors that the function uses must outlive
 * the last replay, and keep their memory: don't move or convert them. An autocast region must begin and end inside the
 * function.
 *
 * NULL, and an error, which is the function's if it failed; the process goes on, and nothing is left. TT_ERR_INVALID
 * NULL, or a number of warm-ups below 0; TT_ERR_UNSUPPORTED a device without graphs, as the cpu, or a child of a
 * process that has used CUDA; TT_ERR_STATE this thread captures already, or the function did what no replay can do:
 * tt_item() and other copies from and to the host, tt_device_synchronize(), clipping by norm, tt_ema_update(),
 * schedulers, tt_recompute(), LAMB, random tensors, DDP; the error names the call. TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_graph *tt_graph_capture(const tt_device *device, int warmup, tt_graph_fn function, void *user);

/* Enqueue what was captured, behind the device's work so far, and return; tt_item() and other calls wait for it as for
 * any work. Errors: TT_ERR_INVALID NULL; TT_ERR_STATE this thread captures a graph; TT_ERR_SYSTEM CUDA refused, and
 * nothing was enqueued, but dropout has drawn. PyTorch: CUDAGraph.replay(). */
TT_API TT_NODISCARD tt_status tt_graph_replay(tt_graph *graph);

/* Free a graph; replays under way end as they would. Its memory is free for all; the memory of tensors that were made
 * in the captured function and still live follows when these are freed. NULL is ignored. */
TT_API void tt_graph_free(tt_graph *graph);

TT_END_DECLS

#endif
