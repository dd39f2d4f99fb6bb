/* tutti/parallel.h: training a module on all ranks of a group. */
#ifndef TUTTI_PARALLEL_H
#define TUTTI_PARALLEL_H

#include <tutti/comm.h>
#include <tutti/nn.h>
#include <tutti/reducer.h>

TT_BEGIN_DECLS

typedef struct tt_ddp_args {
    tt_module *module;       /* required: borrowed; of the wrapper only tt_module_free() may follow its end */
    tt_group *group;         /* required: borrowed; once it is destroyed the wrapper can only be freed */
    size_t bucket_cap_bytes; /* see tt_reducer_create() */
    char tt_end;             /* not an option: see base.h */
} tt_ddp_args;

/* Wrap a module for distributed data-parallel training. Collective: all ranks take rank 0's parameters. From then on every tt_backward() through
 * the wrapper averages the gradients of all parameters over the ranks before it returns, overlapped with the backward pass; every rank gets bitwise
 * the same. All ranks must run the same number of backward passes. PyTorch: torch.nn.parallel.DistributedDataParallel.
 *   tt_ddp(model, world)
 * Gradients (tt_grad) become views into the reducer's buckets. tt_module_parameters() and tt_module_state_dict() of the wrapper are the
 * wrapped module's, without a prefix.
 * NULL on failure: TT_ERR_MISMATCH names the first parameter whose name or shape differs, and the rank; TT_ERR_INVALID no parameter; and those of
 * a collective; TT_ERR_STATE the module, or a part of it, is wrapped already. A parameter that takes no part in a backward pass makes tt_backward() fail with TT_ERR_STATE, naming it. */
TT_API tt_module *tt_ddp_with(const tt_ddp_args *args, size_t size);
#ifndef __cplusplus
#define tt_ddp(...) tt_ddp_with(TT_ARGS(tt_ddp_args, __VA_ARGS__))
#endif

/* The reducer behind a wrapper (borrowed), for tracing; NULL if `ddp` is no wrapper. */
TT_API tt_reducer *tt_ddp_reducer(tt_module *ddp);

/* tt_module_free(ddp) ends the wrapper, not the module. Collective as tt_reducer_free() is. */

TT_END_DECLS
#endif
