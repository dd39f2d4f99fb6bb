/* SyncBatchNorms of a module whose group changes. */
#ifndef TT_PARALLEL_SYNC_BATCH_NORM_H
#define TT_PARALLEL_SYNC_BATCH_NORM_H

#include <tutti/sync_batch_norm.h>

/* Give the SyncBatchNorms of a tree this group; `all`: also make its other batch norms SyncBatchNorms. Collective, with
 * the same `all` on all ranks, even if there are no batch norms. TT_ERR_MISMATCH names the first that differs. */
tt_status tt__sync_batch_norm_renew(tt_module *module, tt_group *group, bool all);

#endif
