/* Devices that are a shared object of their own, libtutti-KIND.so, which is loaded when a program first asks for one
 * ("cuda:0"). It is built with the library, knows its tensors' insides, and links nothing of it: what it needs comes in
 * a table. */
#ifndef TT_TENSOR_DEVICE_PLUGIN_H
#define TT_TENSOR_DEVICE_PLUGIN_H

#include "tensor/kernels/kernels.h"
#include "tensor/shape/iter.h"

#include <stdarg.h>

/* What both sides must agree on. */
typedef struct tt__device_build {
    int version[4];
    size_t tensor, kernels, device, host; /* sizes of structs */
} tt__device_build;

#define TT__DEVICE_BUILD                                                                                   \
    {                                                                                                      \
        {TT_VERSION_MAJOR, TT_VERSION_MINOR, TT_VERSION_PATCH, 0}, sizeof(tt_tensor), sizeof(tt__kernels), \
            sizeof(tt_device), sizeof(tt__device_host)                                                     \
    }

/* What the library offers. Thread-safe. */
typedef struct tt__device_host {
    tt__device_build build;
    tt_status (*fail)(tt_status status, const char *format, ...) TT_PRINTF(2, 3); /* record an error, return `status` */
    int (*vformat)(char *text, size_t size, const char *format, va_list args);
    void (*log)(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);
    tt_status (*last_status)(void);
    const char *(*dtype_name)(tt_dtype dtype);
    tt__iter (*iter_over)(int n, const tt_tensor *const *tensors);
    tt__iter (*iter_row_major)(int n, const tt_tensor *const *tensors);
    tt_status (*refuse_capture)(const char *who, const tt_device *device); /* tt__capture_refuse() */
} tt__device_host;

/* What the shared object offers. Thread-safe; errors are recorded by host->fail(). */
typedef struct tt__device_plugin {
    tt__device_build build;
    tt_status (*count)(int *count);
    /* Begin device `index`, 0 .. count-1, or return it again; it lives as long as the process. NULL: an error. */
    const tt_device *(*device)(int index);
} tt__device_plugin;

/* The one symbol that is exported, "tutti_devices"; NULL: it can't work here, host->fail() said why. */
typedef const tt__device_plugin *tt__device_entry(const tt__device_host *host);

#endif
