/* What a device is, and what its memory holds. */
#include "base/error.h"
#include "tensor/device/device.h"
#include "tensor/device/pinned.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt_device_properties cpu, reference;

static void describe_host(void) {
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    cpu = (tt_device_properties){
        .size = sizeof cpu, .name = tt__cpu_device.name, .total_memory = memory, .uuid = "", .pci_bus_id = ""};
    reference = cpu;
    reference.name = tt__reference_device.name;
}

const tt_device_properties *tt_device_properties_of(const tt_device *device) {
    pthread_once(&once, describe_host);
    if (!device)
        return tt__fail_null(TT_ERR_INVALID, "tt_device_properties_of: `device` is NULL");
    if (device->properties)
        return device->properties;
    return device == &tt__reference_device ? &reference : &cpu;
}

tt_status tt_device_memory_get(const tt_device *device, tt_device_memory *memory) {
    tt_device_memory all = TT_DEVICE_MEMORY_INIT;
    if (!device || !memory || memory->size <= sizeof memory->size)
        return tt__fail(TT_ERR_INVALID,
                        "tt_device_memory_get: expected a device, and memory whose size is set by "
                        "TT_DEVICE_MEMORY_INIT, got %s",
                        !device   ? "NULL"
                        : !memory ? "memory NULL"
                                  : "no size");
    if (!device->memory)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_device_memory_get: expected a device with memory of its own, as TT_CUDA(0), got %s",
                        device->name);
    tt_status status = device->memory(device, &all);
    all.size = memory->size; /* the program may be older or newer */
    memcpy(memory, &all, all.size < sizeof all ? all.size : sizeof all);
    return status ? tt__fail_prefix("tt_device_memory_get") : TT_OK;
}

tt_status tt_device_reset_peak(const tt_device *device) {
    if (!device)
        return tt__fail(TT_ERR_INVALID, "tt_device_reset_peak: `device` is NULL");
    if (device->reset_peak)
        device->reset_peak(device);
    return TT_OK;
}

tt_status tt_device_empty_cache(const tt_device *device) {
    if (!device)
        return tt__fail(TT_ERR_INVALID, "tt_device_empty_cache: `device` is NULL");
    tt__pinned_trim(device);
    return device->empty_cache && device->empty_cache(device) ? tt__fail_prefix("tt_device_empty_cache") : TT_OK;
}
