/* How cuDNN does a convolution: a plan, kept for convolutions of the same sizes, layout and type. */
#ifndef TT_TENSOR_CUDA_CUDA_DNN_PLAN_H
#define TT_TENSOR_CUDA_CUDA_DNN_PLAN_H

#include "tensor/cuda/libraries/cuda_dnn_graph.h"

typedef struct tt__dnn_plan {
    tt__dnn_key key;
    uint64_t used;               /* when, by the number of calls; 0: there is no plan here */
    bool refused;                /* cuDNN has none that may be used */
    tt__dnn_object config, plan; /* the plan reads its engine's configuration */
    size_t workspace;
} tt__dnn_plan;

/* A key has a place in one row, where the plan that was used least recently gives way. */
enum { TT__DNN_ROWS = 64, TT__DNN_PLANS_IN_ROW = 4 };

typedef struct tt__dnn_plans {
    tt__dnn_use use;
    uint64_t calls;
    tt__dnn_plan plan[TT__DNN_ROWS][TT__DNN_PLANS_IN_ROW];
} tt__dnn_plans;

/* Find the plan for a key, or make it; it is good until the next call. Not thread-safe. The result is cudnnStatus_t,
 * and plans->use then says what failed. */
int tt__dnn_plan_for(tt__dnn_plans *plans, const tt__dnn_key *key, tt__dnn_plan **plan);

#endif
