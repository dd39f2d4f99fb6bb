/* What tests ask of the fake of cuBLASLt, which is reached by dlsym(). C. */
#ifndef FAKE_CUDA_CUBLASLT_H
#define FAKE_CUDA_CUBLASLT_H

#ifdef __cplusplus
extern "C" {
#endif

/* How often was entry point `name` ("cublasLtMatmul") called? "with a bias": products that add one. */
long fake_cublaslt_calls(const char *name);

/* From now on `name` returns `status`; 0: it works again. */
void fake_cublaslt_fail(const char *name, int status);

/* From now on each nth question for an algorithm finds none; 0: all do. */
void fake_cublaslt_refuse(int nth);

/* How many objects there are, of all kinds but handles. */
long fake_cublaslt_objects(void);

/* The bytes of workspace that the last question for an algorithm granted. */
unsigned long fake_cublaslt_granted(void);

#ifdef __cplusplus
}
#endif

#endif
