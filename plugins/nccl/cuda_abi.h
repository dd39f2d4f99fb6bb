/* The part of the CUDA driver's interface that is used here. Names, values and types are those of cuda.h; abi_check.c
 * compares them where that is there. */
#ifndef PLUGINS_NCCL_CUDA_ABI_H
#define PLUGINS_NCCL_CUDA_ABI_H

#include <stddef.h>

/* clang-format off */
/* X(name, value) */
#define CUDA_ABI_VALUES(X)                                                                             \
    X(CUDA_SUCCESS, 0) X(CUDA_ERROR_OUT_OF_MEMORY, 2) X(CUDA_ERROR_NO_DEVICE, 100) X(CUDA_ERROR_NOT_READY, 600)
#define CUDA_ABI_FLAGS(X) \
    X(CU_STREAM_NON_BLOCKING, 1) X(CU_EVENT_DISABLE_TIMING, 2) \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9) X(CU_MEMORYTYPE_DEVICE, 2)
/* clang-format on */

#ifndef CUDA_VERSION
#define CUDA_ABI_VALUE(name, value) name = (value),
typedef enum { CUDA_ABI_VALUES(CUDA_ABI_VALUE) CUDA_ERROR_UNKNOWN = 999 } CUresult;
enum { CUDA_ABI_FLAGS(CUDA_ABI_VALUE) };

typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef unsigned long long CUdeviceptr;
typedef unsigned CUpointer_attribute;
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
#endif

/* X(name, parameters) */
#define CUDA_ABI_FUNCTIONS(X)                                              \
    X(cuInit, (unsigned flags))                                            \
    X(cuGetErrorString, (CUresult error, const char **text))               \
    X(cuDeviceGetCount, (int *count))                                      \
    X(cuDeviceGet, (CUdevice * device, int index))                         \
    X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))    \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                     \
    X(cuCtxPushCurrent_v2, (CUcontext context))                            \
    X(cuCtxPopCurrent_v2, (CUcontext * context))                           \
    X(cuStreamCreate, (CUstream * stream, unsigned flags))                 \
    X(cuStreamDestroy_v2, (CUstream stream))                               \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    X(cuEventCreate, (CUevent * event, unsigned flags))                    \
    X(cuEventRecord, (CUevent event, CUstream stream))                     \
    X(cuEventQuery, (CUevent event))                                       \
    X(cuEventElapsedTime, (float *ms, CUevent from, CUevent to))           \
    X(cuEventDestroy_v2, (CUevent event))                                  \
    X(cuMemAlloc_v2, (CUdeviceptr * memory, size_t bytes))                 \
    X(cuMemFree_v2, (CUdeviceptr memory))                                  \
    X(cuPointerGetAttribute, (void *value, CUpointer_attribute attribute, CUdeviceptr memory))

#endif
