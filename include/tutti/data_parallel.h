/* tutti/data_parallel.h: data-parallel training in one process, with a thread for each replica.
 *
 * For small programs, and for teaching: a batch is cut in dimension 0, each replica computes a part of it, and
 * the parts are put together. tt_ddp() (parallel.h) on as many ranks is faster, and goes beyond one machine: there
 * every rank also computes the loss, steps the optimizer and loads its own batches, all of which one thread does here.
 *
 *   tt_module *model = tt_data_parallel(resnet, .replicas = 2);
 *   tt_tensor *loss = tt_cross_entropy(tt_module_forward(model, x), y);
 *   tt_backward(loss);      the replicas' gradients, summed
 *
 * Replicas share the module's parameters, buffers and forward functions; nothing is copied, unless each has a device of
 * its own. So several threads run the forward functions and hooks of the program's modules at once. These may read
 * their data freely; writes must be guarded, or made by replica 0 only (tt_data_parallel_replica()). Running statistics
 * of batch norms are those of replica 0. Meanwhile hooks must not be registered or removed, nor the tree changed. */
#ifndef TUTTI_DATA_PARALLEL_H
#define TUTTI_DATA_PARALLEL_H

#include <tutti/nn.h>

TT_BEGIN_DECLS

typedef struct tt_data_parallel_args {
    tt_module *module; /* required */
    TT_OPTIONS;
    int replicas; /* how many at most, and threads with the caller's; 0, the default: tt_get_num_threads() */
    tt_module *const *copies; /* equal modules on other devices, one for each further replica. See below */
    int64_t copy_count;
    char tt_end; /* not an option: see base.h */
} tt_data_parallel_args;

/* Make a module that runs `module`, its child "module", on parts of the batch: names in lists and the state_dict begin
 * with "module.", which tt_module_load_state_dict() takes for the module itself, too. It owns the module, also on
 * failure, as a sequential owns its children. PyTorch: torch.nn.DataParallel.
 * Its forward takes and gives what the module's does, with every tensor of the same size in dimension 0, which is cut
 * as torch.chunk() does: a small batch makes fewer replicas. Inputs without dimensions go to all replicas. Results are
 * joined in dimension 0, results without dimensions to a vector. Each replica's operators use tt_get_num_threads() /
 * replicas threads, at least one. It runs under the caller's TT_NO_GRAD, autocast and training mode. Replica 0 draws
 * from the caller's default generator; the others from generators that are seeded from that one's state in each
 * forward.
 * The backward pass runs the replicas' in their threads. Gradients are summed in the order of replicas, so that the
 * same batch gives the same bits; hooks of parameters run once, on the sum. The same holds for other leaves that
 * forward functions use, except for leaves inside tt_module_recompute() that are not registered in its module: their
 * gradients are summed in any order, and their hooks run once a replica, on the sum so far. Register those. A tt_ddp()
 * may be around it.
 * On several devices each replica has a module of its own: the wrapped one, which is trained, and .copies of it, made
 * alike and moved (tt_module_to_device()). There are then 1 + .copy_count replicas.
 *   tt_data_parallel(net, .copies = (tt_module *[]){other}, .copy_count = 1)
 * The copies are owned like the module, and are not in lists or the state_dict. A forward gives them the module's
 * parameters, if these have changed, and its buffers and modes. Parts of the batch are moved to their devices, results
 * and gradients to the module's. Hooks of the copies' modules run; those of the module run for replica 0 only.
 * NULL on failure: TT_ERR_INVALID copies that are not like the module or have a parent, or replicas below 0 or above
 * 1024; TT_ERR_UNSUPPORTED a wrapper inside; TT_ERR_STATE the module has a parent; TT_ERR_SYSTEM no more threads can be
 * started; TT_ERR_MEMORY.
 * Errors of the forward: TT_ERR_SHAPE inputs of different sizes in dimension 0, or results that don't fit together;
 * TT_ERR_UNSUPPORTED a recorded result from outside that is no input; what a
 * replica's forward returned: the text names the replica, the first one if there are several. One thread at a time. */
TT_API tt_module *tt_data_parallel_with(const tt_data_parallel_args *args, size_t size);

/* Return which replica the calling thread runs, in a forward or backward; 0 outside of replicas. From any thread. */
TT_API int tt_data_parallel_replica(void);

/* Cut x in dimension 0 for at most `replicas`, as torch.chunk(): views, recorded. parts: room for `replicas`; the rest
 * is NULL. Returns how many there are, -1 on failure: TT_ERR_INVALID; TT_ERR_SHAPE x has no dimension; x NULL: as
 * tt_item(). PyTorch: torch.nn.parallel.scatter. */
TT_API int64_t tt_parallel_scatter(tt_tensor *x, int64_t replicas, tt_tensor **parts);

/* Join tensors in dimension 0, those without dimensions to a vector; recorded. A NULL among them gives NULL. Errors as
 * of tt_cat(); TT_ERR_INVALID no tensors. PyTorch: torch.nn.parallel.gather. */
TT_API tt_tensor *tt_parallel_gather(tt_tensor *const *parts, int64_t count);

#define TT_DATA_PARALLEL_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_data_parallel(...) tt_data_parallel_with(TT_ARGS(tt_data_parallel_args, .module = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
