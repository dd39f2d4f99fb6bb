/* Compare nccl_abi.h and cuda_abi.h with NVIDIA's headers; compiled only where those are there. */
#include <cuda.h>
#include <nccl.h>

#include "cuda_abi.h"
#include "nccl_abi.h"

#define SAME_VALUE(name, value) _Static_assert(name == (value), #name);
NCCL_ABI_RESULTS(SAME_VALUE)
NCCL_ABI_REDUCTIONS(SAME_VALUE)
NCCL_ABI_TYPES(SAME_VALUE)
NCCL_ABI_OTHERS(SAME_VALUE)
CUDA_ABI_VALUES(SAME_VALUE)
CUDA_ABI_FLAGS(SAME_VALUE)
_Static_assert(NCCL_SPLIT_NOCOLOR == -1 && sizeof(ncclUniqueId) == 128, "nccl.h");

#define SAME_PLACE(field) _Static_assert(offsetof(nccl_config, field) == offsetof(ncclConfig_t, field), #field);
SAME_PLACE(size)
SAME_PLACE(magic)
SAME_PLACE(version)
SAME_PLACE(blocking)

#define SAME_FUNCTION(result, name, parameters) \
    typedef result abi_##name parameters;       \
    _Static_assert(__builtin_types_compatible_p(abi_##name, __typeof__(nccl##name)), "nccl" #name);
NCCL_ABI_FUNCTIONS(SAME_FUNCTION)
#if NCCL_VERSION_CODE >= 22700
NCCL_ABI_WINDOW_FUNCTIONS(SAME_FUNCTION)
_Static_assert(NCCL_WIN_COLL_SYMMETRIC == 1, "nccl.h");
#endif

#define SAME_CALL(name, parameters)         \
    typedef CUresult abi_##name parameters; \
    _Static_assert(__builtin_types_compatible_p(abi_##name, __typeof__(name)), #name);
CUDA_ABI_FUNCTIONS(SAME_CALL)
