/* Shared by losses. */
#ifndef TT_AUTOGRAD_LOSS_REDUCTION_H
#define TT_AUTOGRAD_LOSS_REDUCTION_H

#include "autograd/record.h"

/* Reduce the recorded losses `each`, which go; NULL gives NULL. */
tt_tensor *tt__loss_reduced(tt_tensor *each, tt_reduction reduction);

/* Is this one of the reductions, where `batchmean` is one? Else false, and an error. */
bool tt__check_reduction(const char *who, tt_reduction reduction, bool batchmean);

/* The loss that is `call` of input and target, element by element, reduced; both are not NULL. */
tt_tensor *tt__pair_loss(const tt__operator *op, tt_tensor *input, tt_tensor *target, tt__binary call,
                         tt_reduction reduction);

/* Images and sequences of classes: x, called `name`, (B,V,d...) and target (B,d...) as rows (R,V) and (R), recorded;
 * the caller ends both by tt__abandon(). False, and an error: they don't fit, or there is no memory. */
bool tt__class_rows(const char *who, const char *name, tt_tensor *x, tt_tensor *target, tt_tensor **rows,
                    tt_tensor **row_targets);

/* The losses of rows, in the shape of the targets they are of; `each` goes. */
tt_tensor *tt__class_losses(tt_tensor *each, const tt_tensor *target, tt_reduction reduction);

/* Negative log likelihood of x (R,V), with options, reduced; arguments are checked. */
tt_tensor *tt__nll_recorded(tt_tensor *x, tt_tensor *target, tt_tensor *weight, tt__nll call, tt_reduction reduction);

#endif
