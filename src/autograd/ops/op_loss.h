/* What a loss outside of op_loss.c shares with those inside. */
#ifndef TT_AUTOGRAD_OP_LOSS_H
#define TT_AUTOGRAD_OP_LOSS_H

#include "autograd/record.h"

/* Is this one of the reductions, where `batchmean` is one? Else false, and an error. */
bool tt__check_reduction(const char *who, tt_reduction reduction, bool batchmean);

#endif
