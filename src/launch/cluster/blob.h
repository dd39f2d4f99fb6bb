/* A snapshot's ranks of one node as bytes, for the store. Both sides are of one version of Tutti: another layout is
 * refused. */
#ifndef TT_LAUNCH_CLUSTER_BLOB_H
#define TT_LAUNCH_CLUSTER_BLOB_H

#include "launch/local/snapshot.h"

/* Pack the ranks of `node` into *bytes (*size), to be freed. TT_ERR_MEMORY. */
tt_status tt__blob_pack(const tt__snapshot *snapshot, int node, void **bytes, size_t *size);

/* Add the ranks in the bytes to `snapshot`. TT_ERR_PROTOCOL it is something else, TT_ERR_MEMORY, TT_ERR_SYSTEM. */
tt_status tt__blob_unpack(tt__snapshot *snapshot, const void *bytes, size_t size);

#endif
