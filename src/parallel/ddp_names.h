/* What a wrapper's options name: see ddp_names.c. */
#ifndef TT_PARALLEL_DDP_NAMES_H
#define TT_PARALLEL_DDP_NAMES_H

#include "parallel/ddp_state.h"

/* Copy what .ignored and .delay_all_reduce say. After a failure, too, tt__ddp_free_names() must follow. */
tt_status tt__ddp_keep_names(tt__ddp *d, const tt_ddp_args *args);
void tt__ddp_free_names(tt__ddp *d);

/* Is the tensor `name`, or a part of the module that it belongs to, among the names? */
bool tt__ddp_is_named(char *const *names, const char *name);

/* The first name of each that is none in the module, or NULL. */
const char *tt__ddp_unknown_ignored(const tt__ddp *d, const tt_named_tensors *parameters,
                                    const tt_named_tensors *buffers);
const char *tt__ddp_unknown_delayed(const tt__ddp *d, const tt_named_tensors *parameters);

/* Do the names fit the module? The same on ranks that have agreed on lists and unknown names. */
tt_status tt__ddp_check_names(const tt__ddp *d, const tt_named_tensors *parameters, const tt_named_tensors *buffers);

/* tt__ddp_take() of those that aren't ignored. */
tt_status tt__ddp_take_shared(const tt__ddp *d, const tt_named_tensors *list, int root);

#endif
