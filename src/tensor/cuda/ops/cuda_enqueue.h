/* Helpers for the functions in a device's tables. They turn tensors into walks and plain pointers, and enqueue the work
 * on the device's stream. */
#ifndef TT_TENSOR_CUDA_CUDA_ENQUEUE_H
#define TT_TENSOR_CUDA_CUDA_ENQUEUE_H

#include "tensor/cuda/device/cuda_memory.h"
#include "tensor/cuda/device/cuda_state.h"
#include "tensor/kernels/kernels.h"

/* Record a failure to enqueue kernel "sum" of x's type, if `error` is one. */
tt_status tt__cuda_done(cudaError_t error, const tt_tensor *x, const char *kernel);

/* Enqueue `call`, an expression with `stream`, on x's device, and return its status. */
#define TT__CUDA_ENQUEUE(x, kernel, call)                        \
    do {                                                         \
        tt_status enter_status = tt__cuda_enter(tt__cuda_of(x)); \
        if (enter_status)                                        \
            return enter_status;                                 \
        cudaStream_t stream = tt__cuda_stream(tt__cuda_of(x));   \
        return tt__cuda_done(call, x, kernel);                   \
    } while (0)

/* The size of an element by dtype. */
extern const size_t tt__cuda_element_size[TT__DTYPES];

/* Make a walk of an iteration of the library's over these tensors. */
tt__walk tt__cuda_walk_of(const tt__iter *it, const tt_tensor *const *tensors);

/* Walk over tensors of one shape, in the order of the first one's memory. */
tt__walk tt__cuda_walk_over(int n, const tt_tensor *const *tensors);
#define TT__CUDA_WALK(...)                                                                      \
    tt__cuda_walk_over((int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                       (const tt_tensor *[]){__VA_ARGS__})

/* Some dimensions of x alone, in order: those along which y repeats (`repeats`), or the others. */
tt_tensor tt__cuda_dims_of(const tt_tensor *x, const tt_tensor *y, bool repeats);

#endif
