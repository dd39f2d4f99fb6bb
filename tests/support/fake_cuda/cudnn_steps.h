/* Graphs of steps: products, pointwise functions, reductions and views, one after the other. */
#ifndef FAKE_CUDA_CUDNN_STEPS_H
#define FAKE_CUDA_CUDNN_STEPS_H

#include "cudnn_run.h"

#include <cuda_runtime.h>

#include <map>

namespace fake_cudnn {

/* Pointwise functions: x op b, of x, or by t. */
enum { ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, AT_LEAST = 303, INDEX = 501, SELECT = 601 };
enum { REDUCE_ADD = 0, REDUCE_MAX = 3 };

/* Do the tensors of a step fit together? */
bool step_fits(const step &s);

/* Is all that is read there, and is each tensor one thing? */
bool steps_fit(const std::vector<step> &steps);

/* Is the layout one that fused kernels take: 16 bytes at a time? */
bool steps_suit(const std::vector<step> &steps);

/* Values are read at once; the result is cudnnStatus_t. */
int steps_enqueue(const engine &e, const std::map<int64_t, void *> &pointers, void *workspace, cudaStream_t stream);

} /* namespace fake_cudnn */

#endif
