#include "net/interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

/* Return the address's bytes; *size 0: neither IPv4 nor IPv6. */
static const unsigned char *address_bytes(const struct sockaddr *address, size_t *size) {
    if (address->sa_family == AF_INET) {
        *size = 4;
        return (const unsigned char *)address + offsetof(struct sockaddr_in, sin_addr);
    }
    *size = address->sa_family == AF_INET6 ? 16 : 0;
    return (const unsigned char *)address + offsetof(struct sockaddr_in6, sin6_addr);
}

static int prefix_of(const struct sockaddr *mask) {
    size_t size;
    const unsigned char *bytes = address_bytes(mask, &size);
    int bits = 0;
    for (size_t i = 0; i < size; i++)
        bits += __builtin_popcount(bytes[i]);
    return bits;
}

static bool is_usable(const struct ifaddrs *a) {
    size_t size = 0;
    if (!a->ifa_addr || !a->ifa_netmask || !(a->ifa_flags & IFF_UP))
        return false;
    const unsigned char *bytes = address_bytes(a->ifa_addr, &size);
    return size == 4 || (size == 16 && !(bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80));
}

static void fill_interface(tt__interface *out, const struct ifaddrs *a) {
    socklen_t size = a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    *out = (tt__interface){.prefix = prefix_of(a->ifa_netmask), .loopback = a->ifa_flags & IFF_LOOPBACK};
    strncpy(out->name, a->ifa_name, sizeof out->name - 1);
    memcpy(&out->address, a->ifa_addr, size);
}

size_t tt__interfaces(tt__interface *list, size_t max) {
    struct ifaddrs *all = NULL;
    size_t n = 0;
    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *a = all; a && n < max; a = a->ifa_next)
        if (is_usable(a))
            fill_interface(&list[n++], a);
    freeifaddrs(all);
    errno = 0;
    return n;
}

/* Does the name match one part of a list, without its "^": "eth" or "=eth0"? */
static bool pattern_matches(const char *part, size_t length, const char *name) {
    if (length && *part == '=')
        return strlen(name) == length - 1 && !memcmp(part + 1, name, length - 1);
    return length && !strncmp(part, name, length);
}

bool tt__interface_passes(const char *list, const char *name) {
    bool wanted = false, any_wanted = false;
    for (const char *part = list; part && *part;) {
        size_t length = strcspn(part, ",");
        bool excludes = *part == '^';
        bool match = pattern_matches(part + excludes, length - excludes, name);
        if (excludes && match)
            return false;
        any_wanted |= !excludes && length;
        wanted |= !excludes && match;
        part += length + (part[length] == ',');
    }
    return wanted || !any_wanted;
}

static bool same_bits(const struct sockaddr *a, const struct sockaddr *b, int bits) {
    size_t a_size, b_size;
    const unsigned char *x = address_bytes(a, &a_size), *y = address_bytes(b, &b_size);
    size_t whole = (size_t)bits / 8;
    if (a_size != b_size || whole > a_size || memcmp(x, y, whole) != 0)
        return false;
    int rest = bits % 8;
    return !rest || (x[whole] ^ y[whole]) >> (8 - rest) == 0;
}

bool tt__interface_reaches(const tt__interface *interface, const struct sockaddr *address) {
    return same_bits((const struct sockaddr *)&interface->address, address, interface->prefix);
}

bool tt__interface_has(const tt__interface *interface, const struct sockaddr *address) {
    return same_bits((const struct sockaddr *)&interface->address, address, address->sa_family == AF_INET ? 32 : 128);
}
