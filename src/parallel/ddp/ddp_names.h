/* The names in .ignored and .delay_all_reduce of tt_ddp(). A name stands for a tensor, or for all tensors below a
 * child. Lists of them end with NULL; NULL: none. */
#ifndef TT_PARALLEL_DDP_NAMES_H
#define TT_PARALLEL_DDP_NAMES_H

#include "parallel/ddp/ddp_state.h"

/* Copy both lists. tt__ddp_free_names() frees them, also after a failure. */
tt_status tt__ddp_keep_names(tt__ddp *d, const tt_ddp_args *args);
void tt__ddp_free_names(tt__ddp *d);

/* Is the tensor `name`, or a child that it lies below, among the names? */
bool tt__ddp_is_named(char *const *names, const char *name);

/* The first name in .ignored (.delay_all_reduce) that stands for no parameter or buffer (no parameter); or NULL. */
const char *tt__ddp_unknown_ignored(const tt__ddp *d, const tt_named_tensors *parameters,
                                    const tt_named_tensors *buffers);
const char *tt__ddp_unknown_delayed(const tt__ddp *d, const tt_named_tensors *parameters);

/* Refuse names that don't fit the module. Ranks that have compared their lists and unknown names get the same error. */
tt_status tt__ddp_check_names(const tt__ddp *d, const tt_named_tensors *parameters, const tt_named_tensors *buffers);

/* Take rank `root`'s values of those tensors of the list that aren't in .ignored. Collective. */
tt_status tt__ddp_take_shared(const tt__ddp *d, const tt_named_tensors *list, int root);

#endif
