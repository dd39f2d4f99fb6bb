#include "tensor/device/device.h"

#include "base/error.h"
#include "tensor/device/device_plugin.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const tt_device *devices[MAX_DEVICES] = {&tt__cpu_device, &tt__reference_device};
static int count = 2;
static _Thread_local const tt_device *current_cuda; /* what "cuda" means; NULL: cuda:0 */

/* In a forked child the lock is as another thread of the parent held it. */
static void unlock_devices_in_child(void) { pthread_mutex_init(&mutex, NULL); }

static void devices_watch_forks(void) { pthread_atfork(NULL, NULL, unlock_devices_in_child); }

static void lock_devices(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, devices_watch_forks);
    pthread_mutex_lock(&mutex);
}

static const tt_device *device_named(const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(devices[i]->name, name))
            return devices[i];
    return NULL;
}

/* "cpu, reference", for the error. */
static void list_devices(char *text, size_t size) {
    size_t n = 0;
    for (int i = 0; i < count && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", devices[i]->name);
}

const char *tt_device_name(const tt_device *device) { return device ? device->name : "?"; }

void *tt_device_stream(const tt_device *device) {
    return device && device->queue ? device->queue->stream(device) : NULL;
}

tt_status tt_device_synchronize(const tt_device *device) {
    if (!device)
        return tt__fail(TT_ERR_INVALID, "tt_device_synchronize: `device` is NULL");
    return device->synchronize ? device->synchronize(device) : TT_OK;
}

static bool memory_is_whole(const tt_device *d) {
    bool some = d->alloc || d->free || d->to_host || d->from_host;
    return !some || (d->alloc && d->free && d->to_host && d->from_host);
}

static tt_status add_device(const tt_device *device) {
    const tt_device *same = device_named(device->name);
    if (same == device)
        return TT_OK;
    if (same)
        return tt__fail(TT_ERR_INVALID, "a device \"%s\" is registered already", device->name);
    if (count == MAX_DEVICES)
        return tt__fail(TT_ERR_UNSUPPORTED, "no room for the device \"%s\": there are %d already", device->name, count);
    devices[count++] = device;
    return TT_OK;
}

tt_status tt__device_register(const tt_device *device) {
    if (!device || !device->name || !device->kernels)
        return tt__fail(TT_ERR_INVALID, "a device needs a name and a table of kernels");
    if (!memory_is_whole(device))
        return tt__fail(TT_ERR_INVALID, "the device \"%s\" needs all of alloc, free, to_host and from_host, or none",
                        device->name);
    lock_devices();
    tt_status status = add_device(device);
    pthread_mutex_unlock(&mutex);
    return status;
}

/* ---- kernels */

static tt__any_kernel kernel_at(const tt__kernels *table, size_t offset) {
    return table ? *(const tt__any_kernel *)(const void *)((const char *)table + offset) : NULL;
}

/* A fallback serves where it reaches the same memory, that is by plain pointers. */
tt__any_kernel tt__kernel_of(const tt_device *device, tt_dtype dtype, size_t offset) {
    for (const tt_device *d = device; d; d = tt__device_is_host(d) ? d->fallback : NULL) {
        tt__any_kernel found = kernel_at(d->kernels[dtype], offset);
        if (found)
            return found;
    }
    return NULL;
}

/* ---- finding */

static const tt_device *load_device(const char *who, const char *name) {
    const tt_device *loaded = tt__device_load(who, name);
    return loaded && !tt__device_register(loaded) ? loaded : NULL;
}

static const tt_device *find_device(const char *who, const char *name) {
    char known[256];
    lock_devices();
    const tt_device *found = name ? device_named(name) : NULL;
    list_devices(known, sizeof known);
    pthread_mutex_unlock(&mutex);
    if (found)
        return found;
    if (name && !strcmp(name, "cuda") && current_cuda)
        return current_cuda;
    if (name && (!strcmp(name, "cuda") || !strncmp(name, "cuda:", 5)))
        return load_device(who, name);
    return tt__fail_null(TT_ERR_NOT_FOUND, "%s: expected one of %s, or \"cuda:0\" and so on, got \"%s\"", who, known,
                         name ? name : "NULL");
}

const tt_device *tt_device_get(const char *name) { return find_device("tt_device_get", name); }

tt_status tt_set_device(const tt_device *device) {
    if (!device || device->type != TT_DEVICE_CUDA)
        return tt__fail(TT_ERR_INVALID, "tt_set_device: expected a CUDA device, as TT_CUDA(0), got %s",
                        device ? device->name : "NULL");
    current_cuda = device;
    return TT_OK;
}

const tt_device *tt_current_device(void) { return find_device("tt_current_device", "cuda"); }

const tt_device *tt_device_of(tt_device_type type, int64_t index) {
    char name[32];
    if (type == TT_DEVICE_CPU && index == 0)
        return &tt__cpu_device;
    if (type != TT_DEVICE_CUDA || index < 0)
        return tt__fail_null(TT_ERR_NOT_FOUND,
                             "tt_device_of: expected TT_DEVICE_CPU and 0, or TT_DEVICE_CUDA and an "
                             "index of at least 0, got %d and %" PRId64,
                             (int)type, index);
    snprintf(name, sizeof name, "cuda:%" PRId64, index);
    return find_device("tt_device_of", name);
}
