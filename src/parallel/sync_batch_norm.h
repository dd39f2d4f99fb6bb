/* SyncBatchNorms of a module that gets another group. */
#ifndef TT_PARALLEL_SYNC_BATCH_NORM_H
#define TT_PARALLEL_SYNC_BATCH_NORM_H

#include "autograd/failed_pass.h"

#include <tutti/functional.h>
#include <tutti/sync_batch_norm.h>

#include <stdatomic.h>

/* Give the SyncBatchNorms of a tree `group`, and, with `all`, make its other batch norms such layers. Collective, with
 * the same `all` on all ranks, whether there are any or not; TT_ERR_MISMATCH names the first that differs. */
tt_status tt__sync_batch_norm_renew(tt_module *module, tt_group *group, bool all);

#endif
