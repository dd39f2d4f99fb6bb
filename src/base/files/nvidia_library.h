/* NVIDIA's libraries: nothing is linked against them; they are found and loaded when they are first needed. */
#ifndef TT_BASE_NVIDIA_LIBRARY_H
#define TT_BASE_NVIDIA_LIBRARY_H

#include <stddef.h>

typedef struct tt__nvidia_library {
    const char *name;     /* "cuBLASLt", for errors */
    const char *files[3]; /* {"libcublasLt.so.13", "libcublasLt.so.12"}, best first, up to NULL */
    const char *package;  /* "cudnn": PyPI's wheels install into nvidia/cudnn; NULL: there is no wheel */
    const char *wheel;    /* "nvidia-cudnn-cu13": the wheel to install; NULL: there is none */
} tt__nvidia_library;

/* Why a library is refused if getauxval(AT_SECURE) says that the program has more rights than its caller: the caller's
 * environment makes these libraries write to any file and load any code (CUBLASLT_LOG_FILE, CUDNN_LOGDEST_DBG,
 * NCCL_NET_PLUGIN, CUDA_INJECTION64_PATH). */
#define TT__NVIDIA_REFUSED                                                                                        \
    "by a program that runs with more rights than its caller has (set-user-ID, capabilities), whose environment " \
    "could make it load code and write files"

extern const tt__nvidia_library tt__nvidia_cublaslt, tt__nvidia_cudnn, tt__nvidia_nccl, tt__nvidia_driver;

/* Load a library for good. It is looked for in the folders of TT_CUDA_PATH; by the system's loader; in the toolkit
 * ($CUDA_HOME, /usr/local/cuda); and in the wheels of $VIRTUAL_ENV and $CONDA_PREFIX. A file that others can write to
 * (tt__trust()) is skipped, except where the system's loader finds it. Returns the handle, and `text` becomes the
 * file's path; or NULL, and `text` says what was looked for and where, why a file that is there was skipped, and what
 * to install. Thread-safe. */
void *tt__nvidia_open(const tt__nvidia_library *library, char *text, size_t size);

#endif
