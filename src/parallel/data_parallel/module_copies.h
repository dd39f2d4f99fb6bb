/* Modules that replicas run on other devices in place of the first one's: alike, and given its values. */
#ifndef TT_PARALLEL_DATA_PARALLEL_MODULE_COPIES_H
#define TT_PARALLEL_DATA_PARALLEL_MODULE_COPIES_H

#include <tutti/nn.h>

typedef struct tt__given tt__given;

typedef struct tt__module_copies {
    int count;
    tt_module **modules; /* (count): the first one's, borrowed, then the copies, which are owned */
    tt__given *given;    /* (parameters): what the copies have */
} tt__module_copies;

/* Take the copies of `first`, count - 1 of them, which are owned also on failure: TT_ERR_INVALID one that is NULL, has
 * a parent, or is not like the first. NULL: an error. */
tt__module_copies *tt__copies_new(tt_module *first, tt_module *const *copies, int64_t count);
void tt__copies_free(tt__module_copies *copies); /* NULL is allowed */

/* Give all copies the first one's parameters, buffers, modes, and what of it is frozen. */
tt_status tt__copies_give(const tt__module_copies *copies);

/* Where copy r lies; NULL: it has no parameters. Take a list of its parameters, with references, in the order of the
 * first one's; give it back. */
const tt_device *tt__copies_device(const tt__module_copies *copies, int r);
tt_status tt__copies_take_leaves(const tt__module_copies *copies, int r, tt_tensor ***leaves);
void tt__copies_drop_leaves(tt_tensor **leaves, int64_t count);

#endif
