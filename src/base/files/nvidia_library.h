/* NVIDIA's libraries: nothing links them. They are opened by name when they are first needed. */
#ifndef TT_BASE_NVIDIA_LIBRARY_H
#define TT_BASE_NVIDIA_LIBRARY_H

#include <stddef.h>

typedef struct tt__nvidia_library {
    const char *name;     /* "cuBLASLt", for errors */
    const char *files[3]; /* {"libcublasLt.so.13", "libcublasLt.so.12"}, in order, up to NULL */
    const char *package;  /* "cudnn": the folder of PyPI's wheels is nvidia/cudnn */
    const char *wheel;    /* "nvidia-cudnn-cu13": the wheel to install; some plain names are of empty packages */
} tt__nvidia_library;

/* Variables let these libraries write to any file and load any code (CUBLASLT_LOG_FILE, CUDNN_LOGDEST_DBG,
 * NCCL_NET_PLUGIN, CUDA_INJECTION64_PATH): where getauxval(AT_SECURE) says that the caller has fewer rights, they are
 * not opened. */
#define TT__NVIDIA_REFUSED                                                                                        \
    "by a program that runs with more rights than its caller has (set-user-ID, capabilities), whose environment " \
    "could make it load code and write files"

extern const tt__nvidia_library tt__nvidia_cublaslt, tt__nvidia_cudnn, tt__nvidia_nccl, tt__nvidia_driver;

/* Open a library for good. It is looked for in the folders of TT_CUDA_PATH; where the system's loader looks; in the
 * toolkit ($CUDA_HOME, /usr/local/cuda); and in the wheels of $VIRTUAL_ENV and $CONDA_PREFIX. In all these folders but
 * the loader's own, a file that others can write to (tt__trust()) is passed over. `text` becomes the file's path or,
 * with NULL, what was looked for and where, why what is there is not used, and what to install. Thread-safe. */
void *tt__nvidia_open(const tt__nvidia_library *library, char *text, size_t size);

#endif
