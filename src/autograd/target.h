/* Class targets, for the losses that take them. */
#ifndef TT_AUTOGRAD_TARGET_H
#define TT_AUTOGRAD_TARGET_H

#include "tensor/tensor.h"

/* x floats (B,V) called `name`, B and V at least 1; target i64 (B) in 0..V-1. Else an error and false. */
bool tt__check_targets(const char *who, const char *name, const tt_tensor *x, const tt_tensor *target);

#endif
