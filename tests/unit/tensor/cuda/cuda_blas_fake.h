/* What the tests of products on the CUDA device have in common: what they ask of the fake of cuBLASLt. After
 * cmocka.h. */
#ifndef TT_TESTS_UNIT_CUDA_BLAS_FAKE_H
#define TT_TESTS_UNIT_CUDA_BLAS_FAKE_H

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

/* tests/support/fake_cuda/cublaslt.h; NULL before find_fake(), and on a GPU. */
static long (*calls)(const char *name);
static void (*let_fail)(const char *name, int status);
static void (*refuse)(int nth);
static long (*objects)(void);
static unsigned long (*granted)(void);

static inline void find_fake(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libcublasLt.so.13", getenv("TT_CUDA_PATH"));
    void *fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(fake);
    *(void **)&calls = dlsym(fake, "fake_cublaslt_calls");
    *(void **)&let_fail = dlsym(fake, "fake_cublaslt_fail");
    *(void **)&refuse = dlsym(fake, "fake_cublaslt_refuse");
    *(void **)&objects = dlsym(fake, "fake_cublaslt_objects");
    *(void **)&granted = dlsym(fake, "fake_cublaslt_granted");
    assert_true(calls && let_fail && refuse && objects && granted);
}

static inline long products(void) { return calls ? calls("cublasLtMatmul") : 0; }
static inline long questions(void) { return calls("cublasLtMatmulAlgoGetHeuristic"); }

static inline tt_tensor *waves(tt_shape shape, double step, tt_dtype dtype) {
    tt_tensor *x = tt_zeros(shape, TT_F64);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        ((double *)tt_tensor_data(x))[i] = sin(step * (double)(i + 1)) * 0.75;
    return tt_to(x, dtype);
}

#endif
