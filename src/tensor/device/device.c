#include "tensor/device/device.h"

#include "base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const tt_device *devices[MAX_DEVICES] = {&tt__cpu_device, &tt__reference_device};
static int count = 2;

/* In a forked child the lock may be held by a thread that the child doesn't have. */
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

const tt_device *tt__device_registered(const char *name, char *known, size_t size) {
    lock_devices();
    const tt_device *found = name ? device_named(name) : NULL;
    list_devices(known, size);
    pthread_mutex_unlock(&mutex);
    return found;
}
