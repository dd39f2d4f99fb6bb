/* cuDNN as Tutti calls it: the part of its backend interface (descriptors with attributes) that convolutions and
 * attention need, under names of our own, since a machine that builds may lack cudnn.h. Where it is there, cuda_cudnn.c
 * compares values with it. */
#ifndef TT_TENSOR_CUDA_CUDA_CUDNN_H
#define TT_TENSOR_CUDA_CUDA_CUDNN_H

#include "tensor/cuda/device/cuda_state.h"

/* A handle or a descriptor. */
typedef void *tt__dnn_object;

/* Of cudnnStatus_t: it is in thousands by category. */
enum { TT__DNN_OK = 0, TT__DNN_NOT_INITIALIZED = 1001, TT__DNN_NOT_SUPPORTED = 3000 };

/* Of cudnnBackendDescriptorType_t. */
enum {
    TT__DNN_POINTWISE = 0,
    TT__DNN_CONVOLUTION = 1,
    TT__DNN_ENGINE = 2,
    TT__DNN_CONFIG = 3,
    TT__DNN_HEURISTICS = 4,
    TT__DNN_PLAN = 5,
    TT__DNN_OP_FORWARD = 10,
    TT__DNN_OP_BACKWARD_WEIGHT = 11,
    TT__DNN_OP_BACKWARD_DATA = 12,
    TT__DNN_OP_POINTWISE = 13,
    TT__DNN_GRAPH = 15,
    TT__DNN_PACK = 16,
    TT__DNN_TENSOR = 17,
    TT__DNN_MATMUL = 18,
    TT__DNN_OP_MATMUL = 19,
    TT__DNN_REDUCTION = 21,
    TT__DNN_OP_REDUCTION = 22,
    TT__DNN_OP_RESHAPE = 31
};

/* Of cudnnBackendAttributeType_t. */
enum {
    TT__DNN_AS_HANDLE = 0,
    TT__DNN_AS_DATA_TYPE = 1,
    TT__DNN_AS_BOOL = 2,
    TT__DNN_AS_INT64 = 3,
    TT__DNN_AS_FLOAT = 4,
    TT__DNN_AS_DOUBLE = 5,
    TT__DNN_AS_POINTER = 6,
    TT__DNN_AS_CONV_MODE = 7,
    TT__DNN_AS_HEUR_MODE = 8,
    TT__DNN_AS_NOTE = 11,
    TT__DNN_AS_POINTWISE_MODE = 14,
    TT__DNN_AS_DESCRIPTOR = 15,
    TT__DNN_AS_REDUCTION_MODE = 18
};

/* Of cudnnBackendAttributeName_t. */
enum {
    TT__DNN_POINTWISE_MODE = 0,
    TT__DNN_POINTWISE_COMPUTE = 1,
    TT__DNN_POINTWISE_AXIS = 9,
    TT__DNN_CONV_COMPUTE = 100,
    TT__DNN_CONV_MODE = 101,
    TT__DNN_CONV_DILATIONS = 102,
    TT__DNN_CONV_STRIDES = 103,
    TT__DNN_CONV_POST_PADDINGS = 104,
    TT__DNN_CONV_PRE_PADDINGS = 105,
    TT__DNN_CONV_DIMS = 106,
    TT__DNN_HEUR_MODE = 200,
    TT__DNN_HEUR_GRAPH = 201,
    TT__DNN_HEUR_RESULTS = 202,
    TT__DNN_CONFIG_ENGINE = 300,
    TT__DNN_PLAN_HANDLE = 400,
    TT__DNN_PLAN_CONFIG = 401,
    TT__DNN_PLAN_WORKSPACE = 402,
    TT__DNN_FORWARD_ALPHA = 700,
    TT__DNN_FORWARD_BETA = 701,
    TT__DNN_FORWARD_CONV = 702,
    TT__DNN_FORWARD_W = 703,
    TT__DNN_FORWARD_X = 704,
    TT__DNN_FORWARD_Y = 705,
    TT__DNN_DATA_ALPHA = 706,
    TT__DNN_DATA_BETA = 707,
    TT__DNN_DATA_CONV = 708,
    TT__DNN_DATA_W = 709,
    TT__DNN_DATA_DX = 710,
    TT__DNN_DATA_DY = 711,
    TT__DNN_WEIGHT_ALPHA = 712,
    TT__DNN_WEIGHT_BETA = 713,
    TT__DNN_WEIGHT_CONV = 714,
    TT__DNN_WEIGHT_DW = 715,
    TT__DNN_WEIGHT_X = 716,
    TT__DNN_WEIGHT_DY = 717,
    TT__DNN_OP_POINTWISE_HOW = 750,
    TT__DNN_OP_POINTWISE_X = 751,
    TT__DNN_OP_POINTWISE_B = 752,
    TT__DNN_OP_POINTWISE_Y = 753,
    TT__DNN_OP_POINTWISE_T = 758,
    TT__DNN_GRAPH_HANDLE = 800,
    TT__DNN_GRAPH_OPS = 801,
    TT__DNN_TENSOR_ALIGNMENT = 900,
    TT__DNN_TENSOR_TYPE = 901,
    TT__DNN_TENSOR_DIMS = 902,
    TT__DNN_TENSOR_STRIDES = 903,
    TT__DNN_TENSOR_NAME = 906,
    TT__DNN_TENSOR_VIRTUAL = 907,
    TT__DNN_TENSOR_BY_VALUE = 908,
    TT__DNN_PACK_NAMES = 1000,
    TT__DNN_PACK_POINTERS = 1001,
    TT__DNN_PACK_WORKSPACE = 1003,
    TT__DNN_ENGINE_NOTES = 1303,
    TT__DNN_MATMUL_COMPUTE = 1500,
    TT__DNN_OP_MATMUL_A = 1520,
    TT__DNN_OP_MATMUL_B = 1521,
    TT__DNN_OP_MATMUL_C = 1522,
    TT__DNN_OP_MATMUL_HOW = 1523,
    TT__DNN_REDUCTION_MODE = 1600,
    TT__DNN_REDUCTION_COMPUTE = 1601,
    TT__DNN_OP_REDUCTION_X = 1610,
    TT__DNN_OP_REDUCTION_Y = 1611,
    TT__DNN_OP_REDUCTION_HOW = 1612,
    TT__DNN_OP_RESHAPE_X = 2200,
    TT__DNN_OP_RESHAPE_Y = 2201
};

/* Of cudnnDataType_t. */
enum {
    TT__DNN_FLOAT = 0,
    TT__DNN_DOUBLE = 1,
    TT__DNN_HALF = 2,
    TT__DNN_INT32 = 4,
    TT__DNN_BFLOAT16 = 9,
    TT__DNN_BOOLEAN = 11
};

/* Of cudnnPointwiseMode_t. */
enum {
    TT__DNN_ADD = 0,
    TT__DNN_MUL = 1,
    TT__DNN_DIV = 6,
    TT__DNN_SUB = 9,
    TT__DNN_EXP = 13,
    TT__DNN_LOG = 15,
    TT__DNN_AT_LEAST = 303, /* x >= b */
    TT__DNN_INDEX = 501,    /* an element's place along an axis */
    TT__DNN_SELECT = 601    /* x where t is true, else b */
};

enum { TT__DNN_REDUCE_ADD = 0, TT__DNN_REDUCE_MAX = 3 }; /* of cudnnReduceTensorOp_t */
enum { TT__DNN_CROSS_CORRELATION = 1 };                  /* of cudnnConvolutionMode_t */
enum { TT__DNN_HEUR_FALLBACK = 2, TT__DNN_HEUR_A = 3 };  /* of cudnnBackendHeurMode_t */

/* Of cudnnBackendNumericalNote_t: what an engine does to numbers. */
enum {
    TT__DNN_NOTE_TENSOR_CORE = 0,
    TT__DNN_NOTE_DOWN_CONVERTS = 1,
    TT__DNN_NOTE_REDUCED_PRECISION = 2,
    TT__DNN_NOTE_FFT = 3,
    TT__DNN_NOTE_NONDETERMINISTIC = 4,
    TT__DNN_NOTE_WINOGRAD = 5
};

/* X(function, result, arguments), one line an entry point: cudnn<function>. */
#define TT__DNN_FUNCTIONS(X)                                                                                           \
    X(Create, int, (tt__dnn_object * handle))                                                                          \
    X(Destroy, int, (tt__dnn_object handle))                                                                           \
    X(SetStream, int, (tt__dnn_object handle, cudaStream_t stream))                                                    \
    X(GetVersion, size_t, (void))                                                                                      \
    X(GetErrorString, const char *, (int status))                                                                      \
    X(BackendCreateDescriptor, int, (int kind, tt__dnn_object *object))                                                \
    X(BackendDestroyDescriptor, int, (tt__dnn_object object))                                                          \
    X(BackendSetAttribute, int, (tt__dnn_object object, int name, int type, int64_t count, const void *list))          \
    X(BackendGetAttribute, int, (tt__dnn_object object, int name, int type, int64_t most, int64_t *count, void *list)) \
    X(BackendFinalize, int, (tt__dnn_object object))                                                                   \
    X(BackendExecute, int, (tt__dnn_object handle, tt__dnn_object plan, tt__dnn_object pack))

typedef struct tt__dnn {
#define TT__DNN_FIELD(function, result, arguments) result(*function) arguments;
    TT__DNN_FUNCTIONS(TT__DNN_FIELD)
#undef TT__DNN_FIELD
    bool must; /* TT_CUDA_DNN=cudnn: fail if cuDNN can't be used */
} tt__dnn;

/* Find the library, loaded once in the process. *dnn = NULL: our own kernels are used, since it is missing or too old,
 * or TT_CUDA_DNN=own. An error, TT_ERR_NOT_FOUND: TT_CUDA_DNN=cudnn, and it is missing; TT_ERR_INVALID: the variable
 * has another value. */
tt_status tt__dnn_find(const tt__dnn **dnn);

#endif
