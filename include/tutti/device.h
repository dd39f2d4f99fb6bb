/* tutti/device.h: what a device is, and what its memory holds. tensor.h finds devices by name. PyTorch: torch.cuda. */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* What a device is. Later versions may have more fields. */
typedef struct tt_device_properties {
    size_t size;             /* sizeof(tt_device_properties) of the library's version */
    const char *name;        /* "NVIDIA H100 80GB HBM3"; of devices on the host "cpu", "reference" */
    int64_t total_memory;    /* bytes */
    int major, minor;        /* compute capability, as 9 and 0; on the host 0 and 0 */
    int64_t multiprocessors; /* on the host 0 */
    const char *uuid;        /* "GPU-8f6a...", as nvidia-smi and CUDA_VISIBLE_DEVICES have it; on the host "" */
    const char *pci_bus_id;  /* "0000:3b:00.0", as below /sys/bus/pci/devices; on the host "" */
} tt_device_properties;

/* The properties of a device, which live as long as the process. NULL: TT_ERR_INVALID, `device` is NULL. Thread-safe.
 * PyTorch: torch.cuda.get_device_properties(). */
TT_API const tt_device_properties *tt_device_properties_of(const tt_device *device);

/* Let "cuda" without a number mean this device, in tt_device_get() and in what takes such names, in this thread from
 * now on; each thread begins with cuda:0. A program that torchrun or tutti run starts calls it with
 * TT_CUDA(LOCAL_RANK). Errors: TT_ERR_INVALID, no CUDA device. PyTorch: torch.cuda.set_device(). */
TT_API TT_NODISCARD tt_status tt_set_device(const tt_device *device);

/* The device that "cuda" means in this thread; NULL and errors as tt_device_get("cuda"). PyTorch:
 * torch.cuda.current_device(). */
TT_API const tt_device *tt_current_device(void);

/* What this process has of a device's memory, in bytes. Later versions may have more fields. */
typedef struct tt_device_memory {
    size_t size;         /* sizeof(tt_device_memory), set by the caller: TT_DEVICE_MEMORY_INIT */
    int64_t allocated;   /* in tensors, in graphs, and in what calls under way need besides */
    int64_t peak;        /* the most that was allocated since the start, or tt_device_reset_peak() */
    int64_t reserved;    /* taken from the driver: allocated, or free for later tensors */
    int64_t blocks;      /* pieces that `allocated` consists of: one for each storage */
    int64_t allocations; /* how many were ever made */
    int64_t free, total; /* of the device, for all processes */
} tt_device_memory;

#define TT_DEVICE_MEMORY_INIT \
    { sizeof(tt_device_memory), 0, 0, 0, 0, 0, 0, 0 }

/* Fill in `memory`, whose size is set. Does not wait for the device. TT_ERR_INVALID: NULL, or no size;
 * TT_ERR_UNSUPPORTED: a device on the host, which keeps no such numbers; TT_ERR_SYSTEM: the driver does not answer,
 * and free and total are 0. Thread-safe. PyTorch: torch.cuda.memory_stats(), memory_allocated(), mem_get_info(). */
TT_API TT_NODISCARD tt_status tt_device_memory_get(const tt_device *device, tt_device_memory *memory);

/* Set the peak to what is allocated now. On the host nothing happens. TT_ERR_INVALID: NULL. Thread-safe. PyTorch:
 * torch.cuda.reset_peak_memory_stats(). */
TT_API TT_NODISCARD tt_status tt_device_reset_peak(const tt_device *device);

/* Wait for the device's work, then give memory that no tensor uses back to the driver, for other processes: what lies
 * behind the last tensor in use, in whole pieces of 32 MiB or more. Pinned memory of the host that is kept for copies
 * to the device and that nothing uses goes back, too. On the host nothing happens. TT_ERR_INVALID: NULL;
 * TT_ERR_SYSTEM: work that failed, or the driver refused. Thread-safe. PyTorch: torch.cuda.empty_cache(). */
TT_API TT_NODISCARD tt_status tt_device_empty_cache(const tt_device *device);

TT_END_DECLS

#endif
