/* Sparse gradients in a wrapper: parameters of which a pass gives the gradient of some rows.
 *
 * Such a parameter has no elements in the reducer's buckets, only a mark, as every other. So all ranks know, when the
 * buckets have ended, whether any of them used it; then the rows of all are gathered, and each rank adds them up in the
 * order of ranks, which makes the same bits. Terms: the rows of a rank are as many as its pass gave, in ascending order
 * of their numbers. Sent by a rank: 8 (1 + P) bytes for P such parameters, and 8 bytes and C elements for each of its
 * rows.
 * PyTorch: DDP's mark_variable_ready_sparse, and the sparse all_reduce of its gloo back end. */
#ifndef TT_PARALLEL_DDP_SPARSE_H
#define TT_PARALLEL_DDP_SPARSE_H

#include "parallel/ddp/ddp_state.h"

/* Has the slot's parameter a gradient, of the whole or of rows? */
bool tt__ddp_has_gradient(const tt__ddp_slot *s);

/* Refuse, by its name, a sparse parameter that doesn't fit the wrapper's other options. `all`: the module's
 * parameters. */
tt_status tt__ddp_check_sparse(const tt__ddp *d, const tt_named_tensors *all);

/* Refuse the wrapper's first sparse parameter, by its name, in call `who`, which can't work with such. */
tt_status tt__ddp_refuse_sparse(const char *who, const tt__ddp *d);

/* The buckets have ended: average the rows of those parameters that any rank used. Collective. */
tt_status tt__ddp_average_rows(tt__ddp *d);

#endif
