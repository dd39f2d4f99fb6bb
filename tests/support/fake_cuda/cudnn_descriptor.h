/* Descriptors of the fake of cuDNN: what was set in them (cudnn.cc), and what that means once they are finalized
 * (cudnn_finalize.cc). */
#ifndef FAKE_CUDA_CUDNN_DESCRIPTOR_H
#define FAKE_CUDA_CUDNN_DESCRIPTOR_H

#include "cudnn_run.h"

#include <map>
#include <vector>

namespace fake_cudnn {

enum {
    SUCCESS = 0,
    BAD_PARAM = 2000,
    NULL_POINTER = 2002,
    MISALIGNED = 2003,
    NOT_FINALIZED = 2004,
    OUT_OF_BOUND = 2005,
    ATTRIBUTE_TYPE = 2010,
    DESCRIPTOR_TYPE = 2012,
    GRAPH_PATTERN = 3001,
    DATA_TYPE = 3003,
    LAYOUT = 3004,
    EXECUTION_FAILED = 5000
};
enum {
    POINTWISE,
    CONVOLUTION,
    ENGINE,
    CONFIG,
    HEURISTICS,
    PLAN,
    OP_FORWARD = 10,
    OP_WEIGHT,
    OP_DATA,
    OP_POINTWISE,
    GRAPH = 15,
    PACK,
    TENSOR,
    MATMUL,
    OP_MATMUL,
    REDUCTION = 21,
    OP_REDUCTION,
    OP_RESHAPE = 31
};
enum { AS_HANDLE, AS_DATA_TYPE, AS_BOOL, AS_INT64, AS_FLOAT, AS_DOUBLE, AS_POINTER, AS_CONV_MODE, AS_HEUR_MODE };
enum { AS_NOTE = 11, AS_POINTWISE_MODE = 14, AS_DESCRIPTOR = 15, AS_REDUCTION_MODE = 18 };
enum { MODE_FALLBACK = 2, MODE_A = 3 };
enum { TENSOR_CORE, DOWN_CONVERTS, REDUCED_PRECISION, FFT, NONDETERMINISTIC, WINOGRAD };

struct value {
    int type;
    int64_t count;
    std::vector<char> bytes;
};

/* What a finalized descriptor holds is a copy: what it was made of may end. */
struct descriptor {
    int kind;
    bool finalized;
    std::map<int, value> set;
    tensor t;
    window win;
    operation op;
    step how;                    /* of an operation of a graph, or a function of one */
    std::vector<step> steps;     /* of a graph; none: it is a convolution */
    bool refused;                /* a graph that has no engine that may be used */
    std::vector<engine> engines; /* of heuristics; one of an engine, its configuration, and a plan */
    std::map<int64_t, void *> pointers;
    void *workspace;
};

/* Is this a descriptor or a handle that hasn't ended? */
bool object_lives(const void *object);

/* Is this graph to have no engine that may be used? */
bool graph_is_refused();

/* Read and check what was set; the result is cudnnStatus_t. */
int descriptor_finalize(descriptor *d);

} /* namespace fake_cudnn */

#endif
