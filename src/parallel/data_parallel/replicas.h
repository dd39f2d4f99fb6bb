/* A module run by several threads, each on a part of the batch. */
#ifndef TT_PARALLEL_DATA_PARALLEL_REPLICAS_H
#define TT_PARALLEL_DATA_PARALLEL_REPLICAS_H

#include "parallel/data_parallel/replica_crew.h"

#include "parallel/data_parallel/module_copies.h"

#include <tutti/nn.h>

/* How dimension 0 of n elements is cut for at most `replicas`, as torch.chunk: *rows each but for the last. Returns how
 * many parts there are, at least 1. */
int64_t tt__chunk_count(int64_t n, int64_t replicas, int64_t *rows);

/* Run `module` on `in`, cut in dimension 0, in at most `replicas` threads of the crew, and put the results together:
 * recorded as one call of the inputs and the module's parameters. `copies` not NULL: replica r runs copies->modules[r],
 * on its device. */
tt_status tt__replicas_forward(tt__replica_crew *crew, int replicas, tt_module *module, const tt__module_copies *copies,
                               tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count);

#endif
