/* The part of NCCL's interface (2.18 and later) that is used here, so that neither building nor starting needs NCCL.
 * Names, values and types are those of nccl.h; abi_check.c compares them where that is there. */
#ifndef PLUGINS_NCCL_NCCL_ABI_H
#define PLUGINS_NCCL_NCCL_ABI_H

#include <stddef.h>

/* clang-format off */
/* X(name, value) */
#define NCCL_ABI_RESULTS(X)                                                                            \
    X(ncclSuccess, 0) X(ncclUnhandledCudaError, 1) X(ncclSystemError, 2) X(ncclInternalError, 3)       \
    X(ncclInvalidArgument, 4) X(ncclInvalidUsage, 5) X(ncclRemoteError, 6) X(ncclInProgress, 7)
#define NCCL_ABI_REDUCTIONS(X) X(ncclSum, 0) X(ncclProd, 1) X(ncclMax, 2) X(ncclMin, 3) X(ncclAvg, 4)
#define NCCL_ABI_TYPES(X)                                                                              \
    X(ncclInt8, 0) X(ncclUint8, 1) X(ncclInt32, 2) X(ncclInt64, 4) X(ncclFloat16, 6) X(ncclFloat32, 7) \
    X(ncclFloat64, 8) X(ncclBfloat16, 9)
#define NCCL_ABI_OTHERS(X) X(ncclScalarHostImmediate, 1)
/* clang-format on */

#ifndef NCCL_H_
#define NCCL_ABI_VALUE(name, value) name = (value),
typedef enum { NCCL_ABI_RESULTS(NCCL_ABI_VALUE) } ncclResult_t;
typedef enum { NCCL_ABI_REDUCTIONS(NCCL_ABI_VALUE) ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;
typedef enum { NCCL_ABI_TYPES(NCCL_ABI_VALUE) ncclDataType_end } ncclDataType_t;
typedef enum { NCCL_ABI_OTHERS(NCCL_ABI_VALUE) ncclScalarResidence_end } ncclScalarResidence_t;

#define NCCL_SPLIT_NOCOLOR (-1)
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct nccl_config ncclConfig_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
#endif

/* The first fields of ncclConfig_t, as NCCL 2.14 had it: with that version set, later fields keep their defaults. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;
#define NCCL_CONFIG_2_14 \
    { sizeof(nccl_config), 0xcafebeef, 21400, 0 }

/* X(result, name without "nccl", parameters) */
#define NCCL_ABI_FUNCTIONS(X)                                                                                      \
    X(ncclResult_t, GetVersion, (int *version))                                                                    \
    X(ncclResult_t, GetUniqueId, (ncclUniqueId * id))                                                              \
    X(ncclResult_t, CommInitRankConfig,                                                                            \
      (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))                            \
    X(ncclResult_t, CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config))      \
    X(ncclResult_t, CommFinalize, (ncclComm_t comm))                                                               \
    X(ncclResult_t, CommAbort, (ncclComm_t comm))                                                                  \
    X(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                    \
    X(const char *, GetErrorString, (ncclResult_t result))                                                         \
    X(const char *, GetLastError, (ncclComm_t comm))                                                               \
    X(ncclResult_t, RedOpCreatePreMulSum,                                                                          \
      (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm))     \
    X(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                                               \
    X(ncclResult_t, AllReduce,                                                                                     \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,           \
       cudaStream_t stream))                                                                                       \
    X(ncclResult_t, Reduce,                                                                                        \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, \
       cudaStream_t stream))                                                                                       \
    X(ncclResult_t, ReduceScatter,                                                                                 \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,           \
       cudaStream_t stream))                                                                                       \
    X(ncclResult_t, Broadcast,                                                                                     \
      (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                 \
       cudaStream_t stream))                                                                                       \
    X(ncclResult_t, AllGather,                                                                                     \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))     \
    X(ncclResult_t, Send,                                                                                          \
      (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))       \
    X(ncclResult_t, Recv,                                                                                          \
      (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))             \
    X(ncclResult_t, GroupStart, (void))                                                                            \
    X(ncclResult_t, GroupEnd, (void))

/* NCCL's functions for windows, which are used if there: 2.27 and later have all. */
#define NCCL_ABI_WINDOW_FUNCTIONS(X)                                                                                \
    X(ncclResult_t, MemAlloc, (void **memory, size_t bytes))                                                        \
    X(ncclResult_t, MemFree, (void *memory))                                                                        \
    X(ncclResult_t, CommWindowRegister, (ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *window, int flags)) \
    X(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))

#endif
