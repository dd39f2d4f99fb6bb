/* Helpers for building models. Each child is made in the call that adds it to the module, so that after a failure none
 * is left without an owner. */
#ifndef TT_MODELS_PARTS_H
#define TT_MODELS_PARTS_H

#include "base/error.h"
#include "nn/initial.h"

/* Add a child under a name; *part borrows it. Fails if the child is NULL or can't be added; then it is freed. */
tt_status tt__add_part(tt_module **part, tt_module *self, const char *name, tt_module *child);

/* Add a child under the next number, "0", "1", ... */
tt_status tt__add_numbered(tt_module *self, tt_module *child);

/* Make an empty Sequential, for tt__add_numbered(). */
tt_module *tt__empty_sequential(void);

/* tt__layer_made() for a whole model: the error, perhaps of a layer, begins with the constructor's name, `who`. */
tt_module *tt__model_made(const char *who, tt_module *model, tt_status status);

/* x, with elements dropped while the module is in training mode, from the thread's default generator. */
tt_tensor *tt__drop(const tt_module *self, tt_tensor *x, double p);

/* Is p a probability, 0..1? Else TT_ERR_INVALID, with the option's name. */
tt_status tt__dropout_check(const char *who, const char *name, double p);

#endif
