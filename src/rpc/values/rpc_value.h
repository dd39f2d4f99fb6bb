/* References in values. rpc_value.c may not call references.c, which therefore gives it functions that share and free a
 * reference. */
#ifndef TT_RPC_VALUE_H
#define TT_RPC_VALUE_H

#include "rpc/values/tensor_hooks.h"

typedef struct tt__rpc_rref_hooks {
    tt_rref *(*share)(tt_rref *rref);
    void (*free)(tt_rref *rref);
} tt__rpc_rref_hooks;

/* Set these functions, before the first reference is made. */
void tt__rpc_set_rref_hooks(const tt__rpc_rref_hooks *hooks);

/* Return an owned value that has a new share of a reference. */
tt_rpc_value tt__value_of_rref(tt_rref *rref);

/* Lend an owned value, with the values in it: its holder keeps it, and others copy it; or make it owned again. */
void tt__value_lend(tt_rpc_value *value);
void tt__value_take_back(tt_rpc_value *value);

/* Release a value that was lent, or is owned. */
void tt__value_free_lent(tt_rpc_value *value);

#endif
