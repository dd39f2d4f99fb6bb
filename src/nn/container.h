/* A module's forward as a chain of parts, which pipelines cut. */
#ifndef TT_NN_CONTAINER_H
#define TT_NN_CONTAINER_H

#include <tutti/nn.h>

/* How many parts the forward has; 1 for what can't be cut: its class says nothing, or it has hooks or casts of its own
 * around its whole forward. */
int64_t tt__chain_length(tt_module *module);

/* Part i of the forward, of what part i - 1 gave. */
tt_tensor *tt__chain_forward(tt_module *module, int64_t i, tt_tensor *x);

/* Number k of the modules that part i uses; NULL: no more. */
tt_module *tt__chain_module(tt_module *module, int64_t i, int64_t k);

#endif
