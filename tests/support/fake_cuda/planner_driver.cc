/* A driver for NVIDIA's own cuDNN where there is none, so that it makes plans of kernels that it compiles: it says that
 * it has loaded them. It has no device, and nothing can run. cuDNN wants all of these entry points to be there. */
#define SUCCEEDS(name) \
    int name() { return 0; }
#define FAILS(name) \
    int name() { return NO_DEVICE; }
#define GIVES_SOMETHING(name)   \
    int name(const void **to) { \
        *to = to;               \
        return 0;               \
    }
#define GIVES(name, number) \
    int name(int *to) {     \
        *to = number;       \
        return 0;           \
    }

enum { NO_DEVICE = 100 };

extern "C" {

FAILS(cuInit) /* so CUDA's runtime asks no further */
GIVES(cuDriverGetVersion, 13000)
GIVES_SOMETHING(cuLibraryLoadData)
GIVES_SOMETHING(cuLibraryGetKernel)
GIVES_SOMETHING(cuKernelGetFunction)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuFuncSetAttribute)
GIVES(cuKernelGetAttribute, 0)
GIVES(cuFuncGetAttribute, 0)
GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)

FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuDeviceGet)
FAILS(cuDeviceGetCount)
FAILS(cuGetErrorName)
FAILS(cuGetErrorString)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLinkAddData)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkDestroy)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)
}
