/* References in values: values stand below them, so they give the functions that share and free one. */
#ifndef TT_RPC_VALUE_H
#define TT_RPC_VALUE_H

#include "rpc/tensor_hooks.h"

typedef struct tt__rpc_rref_hooks {
    tt_rref *(*share)(tt_rref *rref);
    void (*free)(tt_rref *rref);
} tt__rpc_rref_hooks;

/* Give them, before there is any reference. */
void tt__rpc_set_rref_hooks(const tt__rpc_rref_hooks *hooks);

/* Make an owned value of a new share of a reference. */
tt_rpc_value tt__value_of_rref(tt_rref *rref);

#endif
