/* Virtual ranks of a DDP wrapper: see ddp_shards.c. */
#ifndef TT_PARALLEL_DDP_SHARDS_H
#define TT_PARALLEL_DDP_SHARDS_H

#include "parallel/ddp/ddp_state.h"

/* Can this group have the wrapper's virtual ranks? */
tt_status tt__ddp_check_shards(const tt__ddp *d, const tt_group *group);

/* The wrapper has a new reducer, for its group; it goes. Nothing without virtual ranks. */
tt_status tt__ddp_attach_shards(tt__ddp *d);
void tt__ddp_detach_shards(tt__ddp *d);

/* A forward that is recorded begins: the next shard's, unless it is another one of the same. Needs d->shards. */
tt_status tt__ddp_begin_shard(tt__ddp *d);

/* Does the pass under way end the step? */
bool tt__ddp_shard_is_last(const tt__ddp *d);

/* A gradient is final: of a shard that isn't the last; of the last, or of a wrapper without virtual ranks, before it is
 * marked. */
tt_status tt__ddp_shard_gradient(tt__ddp_slot *slot);
tt_status tt__ddp_add_to_shards(const tt__ddp_slot *slot);

/* The step has been averaged. */
tt_status tt__ddp_end_shards(tt__ddp *d);

/* How many shards this rank has, from *first on; 0: the wrapper is bound to no group. */
int tt__ddp_shard_count(const tt__ddp *d, int *first);

tt_status tt__ddp_set_step(tt__ddp *d, int64_t step);

#endif
