/* Which of the machine's devices a process sees: CUDA_VISIBLE_DEVICES. */
#include "memory.h"
#include "stream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static std::string uuid_text(int device) {
    std::string text;
    char byte[8];
    for (int i = 0; i < 16; i++) {
        snprintf(byte, sizeof byte, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                 (unsigned char)(i * 17 + device));
        text += byte;
    }
    return text;
}

/* The device that an entry means, whose list begins as `list` does; -1: none, or several. */
static int device_named(const std::string &entry, const std::string &list) {
    int found = -1, matches = 0;
    const std::string kind = list.substr(0, 4);
    if (kind != "GPU-" && kind != "MIG-") {
        char *end;
        const long number = strtol(entry.c_str(), &end, 10);
        return end > entry.c_str() && number >= 0 && number < fake_device_count() ? (int)number : -1;
    }
    for (int i = 0; i < fake_device_count(); i++)
        if ((kind + uuid_text(i)).compare(0, entry.size(), entry) == 0 && entry.size() > 4)
            found = i, matches++;
    return matches == 1 && (kind == "GPU-" || entry.size() == 40) ? found : -1;
}

/* The machine's devices that a process sees. A list has numbers, UUIDs or what one UUID alone begins with, or whole
 * names of parts of GPUs (MIG; here each device has one, MIG- and its UUID, and CUDA shows the first alone). It ends
 * before the first entry that means nothing; a device that comes twice hides all. */
static std::vector<int> visible_devices(const std::string &list) {
    std::vector<int> devices;
    for (size_t at = 0; at <= list.size();) {
        const size_t end = std::min(list.find(',', at), list.size());
        const int device = device_named(list.substr(at, end - at), list);
        if (device < 0)
            break;
        if (std::count(devices.begin(), devices.end(), device))
            return {};
        devices.push_back(device);
        at = end + 1;
    }
    if (list.compare(0, 4, "MIG-") == 0 && devices.size() > 1)
        devices.resize(1);
    return devices;
}

int fake_physical_device(int index) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list)
        return index < fake_device_count() ? index : -1;
    const std::vector<int> devices = visible_devices(list);
    return index >= 0 && index < (int)devices.size() ? devices[(size_t)index] : -1;
}
