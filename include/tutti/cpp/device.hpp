/* tutti/cpp/device.hpp: what a device is, and what its memory holds. */
#ifndef TUTTI_CPP_DEVICE_HPP
#define TUTTI_CPP_DEVICE_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/device.h>

namespace tutti {

inline const tt_device_properties &properties(const tt_device *device) {
    return *check(tt_device_properties_of(device));
}

/* The device that device("cuda") means in this thread. */
inline void set_device(const tt_device *device) { check(tt_set_device(device)); }
inline const tt_device *current_device() { return check(tt_current_device()); }

inline tt_device_memory memory(const tt_device *device) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    check(tt_device_memory_get(device, &memory));
    return memory;
}
inline void reset_peak_memory(const tt_device *device) { check(tt_device_reset_peak(device)); }
inline void empty_cache(const tt_device *device) { check(tt_device_empty_cache(device)); }

} // namespace tutti

#endif
