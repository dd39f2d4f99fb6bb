/* Buckets on a device, where the group's back end averages its memory: see ddp_place.c. */
#ifndef TT_PARALLEL_DDP_PLACE_H
#define TT_PARALLEL_DDP_PLACE_H

#include "parallel/ddp/ddp_state.h"

/* Refuse parameters where the group's back end takes no memory, neither there nor on the host. */
tt_status tt__ddp_check_place(const tt__ddp *d, const tt_group *group, const tt_named_tensors *parameters);

/* Where the buckets of the wrapper's slots lie: on their device, or (NULL) on the host. */
const tt__reducer_place *tt__ddp_place(tt__ddp *d);

#endif
