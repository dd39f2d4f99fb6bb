#include "tensor/cuda/libraries/cuda_cublaslt.h"

#include "base/files/nvidia_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    tt_status status;
    bool found;
    tt__lt functions;
    char text[2048]; /* why it is not used */
} library;

static void find_entries(void *object, const char *path) {
    struct {
        const char *name;
        void *function;
    } all[] = {
#define LT_ENTRY(function, result, arguments) {"cublasLt" #function, &library.functions.function},
        TT__LT_FUNCTIONS(LT_ENTRY)
#undef LT_ENTRY
    };
    library.found = true;
    for (size_t i = 0; i < sizeof all / sizeof *all && library.found; i++) {
        void *entry = dlsym(object, all[i].name);
        memcpy(all[i].function, &entry, sizeof entry);
        library.found = entry != NULL;
        if (!entry)
            snprintf(library.text, sizeof library.text,
                     "cuBLASLt is too old: %.1500s has no %s(). Expected one of CUDA 12 or later", path, all[i].name);
    }
}

static void find_library(void) {
    const char *wanted = secure_getenv("TT_CUDA_BLAS");
    bool own = wanted && !strcmp(wanted, "own"), must = wanted && !strcmp(wanted, "cublaslt");
    if (own)
        return;
    if (wanted && *wanted && !must) {
        library.status = TT_ERR_INVALID;
        snprintf(library.text, sizeof library.text, "TT_CUDA_BLAS: expected \"own\" or \"cublaslt\", got \"%.100s\"",
                 wanted);
        return;
    }
    void *object = tt__nvidia_open(&tt__nvidia_cublaslt, library.text, sizeof library.text);
    if (object) {
        char path[sizeof library.text];
        snprintf(path, sizeof path, "%s", library.text);
        find_entries(object, path);
    }
    library.status = must && !library.found ? TT_ERR_NOT_FOUND : TT_OK;
    if (!library.found && !must)
        tt__cuda_host->log(TT_LOG_WARNING, "matrix products run by Tutti's own kernels, which are slower: %s",
                           library.text);
}

tt_status tt__lt_find(const tt__lt **lt) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_library);
    *lt = library.found ? &library.functions : NULL;
    return library.status ? tt__cuda_host->fail(library.status, "%s", library.text) : TT_OK;
}

/* ---- are the declarations the toolkit's? ---- */

#if defined(CUDART_VERSION) && defined(__has_include) /* not on the fake of CUDA */
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_PLACE(ours, theirs) \
    _Static_assert(offsetof(tt__lt_choice, ours) == offsetof(cublasLtMatmulHeuristicResult_t, theirs), #theirs)

SAME_SIZE(tt__lt_algorithm, cublasLtMatmulAlgo_t);
SAME_SIZE(tt__lt_choice, cublasLtMatmulHeuristicResult_t);
SAME_PLACE(workspace, workspaceSize);
SAME_PLACE(status, state);
SAME_SIZE(int, cublasStatus_t);
SAME_SIZE(int, cudaDataType);
SAME_SIZE(int, cublasComputeType_t);
SAME_SIZE(int, cublasLtMatmulDescAttributes_t);
SAME_VALUE(TT__LT_OK, CUBLAS_STATUS_SUCCESS);
SAME_VALUE(TT__LT_ARCH_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH);
SAME_VALUE(TT__LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME_VALUE(TT__LT_R_32F, CUDA_R_32F);
SAME_VALUE(TT__LT_R_64F, CUDA_R_64F);
SAME_VALUE(TT__LT_R_16F, CUDA_R_16F);
SAME_VALUE(TT__LT_R_16BF, CUDA_R_16BF);
SAME_VALUE(TT__LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME_VALUE(TT__LT_COMPUTE_64F, CUBLAS_COMPUTE_64F);
SAME_VALUE(false, CUBLAS_OP_N);
SAME_VALUE(true, CUBLAS_OP_T);
SAME_VALUE(TT__LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME_VALUE(TT__LT_LAYOUT_BATCH_STEP, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME_VALUE(TT__LT_DESC_TURN_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME_VALUE(TT__LT_DESC_TURN_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME_VALUE(TT__LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME_VALUE(TT__LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME_VALUE(TT__LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME_VALUE(TT__LT_WISH_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME_VALUE(TT__LT_WISH_SCHEMES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME_VALUE(TT__LT_WISH_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(TT__LT_WISH_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(TT__LT_WISH_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME_VALUE(TT__LT_WISH_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME_VALUE(TT__LT_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
#endif
#endif
