/* Devices: where the bytes of a storage lie, and the kernels that compute on them.
 *
 * A device is a table: memory, copies to and from the host, and for each element type a table of kernels (kernels.h). A
 * new one is a folder: it fills a tt_device and registers it. What a device has no kernel for falls to its `fallback`,
 * if that can read its memory. */
#ifndef TT_TENSOR_DEVICE_H
#define TT_TENSOR_DEVICE_H

#include "base/dtype.h"

#include <tutti/device.h>

struct tt__kernels;

/* What an exchange between ranks needs of a device whose work runs beside the host, in the order of its stream. May be
 * called from any thread. */
typedef struct tt__device_queue {
    /* Pin memory of the host: copies reach it without the driver's own buffers. It must be unpinned before it is freed,
     * while no copy is under way. Memory that can't be pinned is copied all the same, more slowly. */
    tt_status (*pin)(const tt_device *device, void *host, size_t bytes);
    void (*unpin)(const tt_device *device, void *host);

    /* Begin to copy `from` to the host, after the work so far and beside later work. Pass *mark to sent() until this
     * says done or fails; with `wait` sent() waits. After a failure of either no copy is under way. */
    tt_status (*send)(const tt_device *device, void *host, const void *from, size_t bytes, void **mark);
    tt_status (*sent)(const tt_device *device, void *mark, bool wait, bool *done);

    /* Copy from the host, between earlier and later work. The caller leaves the host's bytes alone until that is
     * done. */
    tt_status (*receive)(const tt_device *device, void *to, const void *host, size_t bytes);

    /* Let *mark, NULL or that of earlier work, tell sent() when the work so far is done. After a failure it is NULL,
     * and the work is done. */
    tt_status (*mark)(const tt_device *device, void **mark);

    void *(*stream)(const tt_device *device); /* as a back end takes it: tt_call.stream */
} tt__device_queue;

/* The most words that tt__device_graphs.set() takes. */
enum { TT__GRAPH_WORDS = 448 };

/* Graphs: the work that one thread enqueues between begin() and end(), which runs at each launch and not before. Memory
 * that the thread takes meanwhile is the graph's, and so is what it frees, until free(). `graph` is the device's. */
typedef struct tt__device_graphs {
    tt_status (*begin)(const tt_device *device, void **graph);
    /* By the thread that began. `keep` false: the work is dropped, and nothing fails. */
    tt_status (*end)(const tt_device *device, void *graph, bool keep);
    /* Memory that no captured work uses, for numbers that are set before a launch. device->free() takes it back, not
     * before end(). NULL: an error. */
    void *(*numbers)(const tt_device *device, size_t bytes);
    /* Write n words there, behind the work so far. They are read before the call returns. */
    tt_status (*set)(const tt_device *device, void *to, const uint64_t *words, size_t n);
    tt_status (*launch)(const tt_device *device, void *graph);
    void (*free)(const tt_device *device, void *graph); /* it has ended; launches under way go on */
} tt__device_graphs;

/* The most ranks that reach each other's devices: the GPUs of a host, and ranks that share one. */
enum { TT__DEVICE_PEERS = 8 };

/* Memory of the device, a range of addresses of which pieces are backed, as other processes of the host map it. No two
 * pieces of a process have the same serial. */
typedef struct tt__device_piece {
    uint64_t serial;
    uint64_t range, offset, bytes; /* bytes of the whole range; where in it the piece begins */
    uint64_t at;                   /* where in the piece the byte lies that was asked for */
} tt__device_piece;

/* Gradients of n ranks, each in memory of its own that this device reaches: element i of rank r at of[r]. */
typedef struct tt__device_sum {
    void *of[TT__DEVICE_PEERS];
    int n;
    size_t first, count; /* elements that are summed here */
    tt_dtype dtype;      /* of floats */
    bool average;
} tt__device_sum;

/* What ranks of a host need to add up each other's memory where it lies. May be called from any thread. */
typedef struct tt__device_sharing {
    /* Find the piece that memory of the device lies in / make a descriptor for it, which the caller closes. */
    tt_status (*piece)(const tt_device *device, const void *memory, tt__device_piece *piece);
    tt_status (*give)(const tt_device *device, const void *memory, int *fd);

    /* Reserve addresses for another process's range / map a piece of it there, replacing what is mapped there. `fd`
     * stays the caller's. */
    tt_status (*range_new)(const tt_device *device, uint64_t bytes, void **range);
    tt_status (*range_take)(const tt_device *device, void *range, const tt__device_piece *piece, int fd);
    void *(*range_at)(const void *range, uint64_t offset);
    void (*range_free)(const tt_device *device, void *range); /* no work uses it any more */

    /* Begin to write the sums, in the one order of docs/collectives.md, to each of sum->of, beside the device's later
     * work. sum() doesn't wait for earlier work, because the host has waited. *mark: as tt__device_queue.send() gives
     * it. */
    tt_status (*sum)(const tt_device *device, const tt__device_sum *sum, void **mark);
} tt__device_sharing;

struct tt_device {
    const char *name; /* "cpu": what tt_device_get() finds it by */

    tt_device_type type;
    int index; /* among the devices of the type */

    /* Memory, 64-byte aligned. All NULL: host memory, which plain pointers reach; it comes from the thread's pool.
     * Otherwise all are given. They may be called from any thread. Copies return when the host's bytes may be read or
     * changed. */
    void *(*alloc)(const tt_device *device, size_t bytes); /* NULL: there is none; a recorded error says so */
    void (*free)(const tt_device *device, void *p);
    tt_status (*to_host)(const tt_device *device, void *host, const void *from, size_t bytes);
    tt_status (*from_host)(const tt_device *device, void *to, const void *host, size_t bytes);

    tt_status (*synchronize)(const tt_device *device); /* NULL: its work is done when its calls return */

    const struct tt__device_queue *queue;   /* NULL: nothing runs beside the host */
    const struct tt__device_graphs *graphs; /* NULL: it has none */
    const tt__device_sharing *sharing;      /* NULL: no other process reaches its memory */

    /* properties NULL: those of the host. The functions are called through device_memory.c; NULL: the device keeps no
     * such numbers. */
    const tt_device_properties *properties;
    tt_status (*memory)(const tt_device *device, tt_device_memory *memory);
    void (*reset_peak)(const tt_device *device);
    tt_status (*empty_cache)(const tt_device *device);

    /* Kernels by the element type of the tensor that is written; NULL: none of that type. */
    const struct tt__kernels *const *kernels; /* (TT__DTYPES) */
    const tt_device *fallback;                /* NULL: none */
};

extern const tt_device tt__cpu_device, tt__reference_device;

static inline bool tt__device_is_host(const tt_device *device) { return !device->alloc; }

/* Register a device for tt_device_get(); borrowed for the life of the process. TT_ERR_INVALID where its table lacks
 * something or its name is taken; registering the same one again is allowed. Thread-safe. */
tt_status tt__device_register(const tt_device *device);

/* Find a registered device; NULL: there is none of that name. Write the names of all to `known`, for the error. */
const tt_device *tt__device_registered(const char *name, char *known, size_t size);

#endif
