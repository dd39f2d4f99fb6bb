/* What the ranks of a SyncBatchNorm tell each other. */
#ifndef TT_PARALLEL_SYNC_EXCHANGE_H
#define TT_PARALLEL_SYNC_EXCHANGE_H

#include "autograd/reach.h"

#include <tutti/functional.h>
#include <tutti/sync_batch_norm.h>

#include <stdatomic.h>

/* How far a forward has come. A failure on this rank alone before the exchange is told in it; after it, by aborting the
 * group. */
typedef enum tt__sync_progress { TT__NOT_EXCHANGED, TT__EXCHANGING, TT__EXCHANGED } tt__sync_progress;

/* The group of the layers that were made together: one reference each, and one each record. */
typedef struct tt__sync_ranks {
    tt_group *group;
    int world;
    _Atomic int refs;
    double *parts; /* of all ranks, then this one's own: room for the widest layer */
    tt__sync_progress progress;
    const tt_device *device; /* of the last x; NULL: there was none */
    tt__pass_watcher passes;
} tt__sync_ranks;

/* What a rank sends in a forward: means (C), variances (C), how many elements a channel has. */
static inline size_t tt__sync_part_size(int64_t channels) { return 2 * (size_t)channels + 1; }

/* Find mean and rstd (C), in f64, over all ranks, and move the running statistics towards them. *count: the elements of
 * a channel. */
tt_status tt__sync_stats(tt__sync_ranks *ranks, const tt_batch_norm_args *args, tt_tensor *mean, tt_tensor *rstd,
                         int64_t *count);

/* This rank has failed: tell the others, which exchange their parts, or will. Keeps its error. */
void tt__sync_tell_failure(tt__sync_ranks *ranks, int64_t channels);

/* sums (2,C) := those of db and dw over all ranks, in f64. */
tt_status tt__sync_sums(const tt__sync_ranks *ranks, const tt_tensor *db, const tt_tensor *dw, tt_tensor *sums);

#endif
