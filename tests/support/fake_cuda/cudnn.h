/* What tests ask of the fake of cuDNN, which is reached by dlsym(). C. */
#ifndef FAKE_CUDA_CUDNN_H
#define FAKE_CUDA_CUDNN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How often was entry point `name` ("cudnnBackendExecute") called? NULL: how often was any? */
long fake_cudnn_calls(const char *name);

/* From now on call number n of `name` (NULL: of any entry point) returns `status`; n = 0: each call. Status 0: all work
 * again. */
void fake_cudnn_fail(const char *name, int n, int status);

/* From now on each nth graph has no engine that may be used; 0: all have one. */
void fake_cudnn_refuse(int nth);

/* Be this version (91900) from now on. */
void fake_cudnn_be(size_t version);

/* How many descriptors and handles there are. */
long fake_cudnn_objects(void);

#ifdef __cplusplus
}
#endif

#endif
