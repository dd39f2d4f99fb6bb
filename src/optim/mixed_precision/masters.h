/* Master parameters: the f32 values of parameters of 16 bits, which an optimizer updates in their place. After a step
 * each parameter is its master, rounded. Where a parameter was changed since (a program loaded others, or DDP sent rank
 * 0's), the master follows. */
#ifndef TT_OPTIM_MASTERS_H
#define TT_OPTIM_MASTERS_H

#include "optim/optimizer.h"

/* Bring masters up to their parameters' values and gradients. */
tt_status tt__masters_begin(const char *who, tt_optimizer *optimizer);

/* Bring one parameter's master, which it has, up to its value and gradient. */
tt_status tt__master_begin(const char *who, const tt__optim_param *param);

/* For parameters that are about to become 16-bit: make a master of each one of f32, in
 * *list (NULL on failure). tt__masters_take() then gives them to the parameters that have become 16-bit, and ends the
 * rest, or all where `keep` is false. */
tt_status tt__masters_prepare(const char *who, const tt_optimizer *optimizer, tt_tensor ***list);
void tt__masters_take(tt_optimizer *optimizer, tt_tensor **list, bool keep);

/* The parameter := its updated master, rounded. */
tt_status tt__master_end(const char *who, const tt__optim_param *param);

#endif
