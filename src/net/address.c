/* Names and addresses of hosts, and interfaces: net.h. */
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

bool tt__net_is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in4;
        memcpy(&in4, address, sizeof in4);
        return ntohl(in4.sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) && in6.sin6_addr.s6_addr[12] == 127);
    }
    return false;
}

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b) {
    struct sockaddr_in6 a6, b6;
    struct sockaddr_in a4, b4;
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6) {
        memcpy(&a6, a, sizeof a6);
        memcpy(&b6, b, sizeof b6);
        return !memcmp(&a6.sin6_addr, &b6.sin6_addr, sizeof a6.sin6_addr);
    }
    memcpy(&a4, a, sizeof a4);
    memcpy(&b4, b, sizeof b4);
    return a->ss_family == AF_INET && a4.sin_addr.s_addr == b4.sin_addr.s_addr;
}

bool tt__net_is_local(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    return !getsockname(fd, (struct sockaddr *)&here, &here_size) &&
           !getpeername(fd, (struct sockaddr *)&there, &there_size) &&
           (tt__net_is_loopback((struct sockaddr *)&there) || same_address(&here, &there));
}

void tt__net_unmap(struct sockaddr_storage *address) {
    struct sockaddr_in6 in6;
    memcpy(&in6, address, sizeof in6);
    if (address->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
        return;
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = in6.sin6_port};
    memcpy(&in4.sin_addr, in6.sin6_addr.s6_addr + 12, 4);
    memcpy(address, &in4, sizeof in4);
}

void tt__net_address_text(const struct sockaddr *address, char text[TT__NET_ADDRESS_SIZE]) {
    char name[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, name, sizeof name);
        snprintf(text, TT__NET_ADDRESS_SIZE, "[%s]:%d", name, ntohs(in6.sin6_port));
    } else {
        struct sockaddr_in in4;
        memcpy(&in4, address, sizeof in4);
        inet_ntop(AF_INET, &in4.sin_addr, name, sizeof name);
        snprintf(text, TT__NET_ADDRESS_SIZE, "%s:%d", name, ntohs(in4.sin_port));
    }
}

void tt__net_endpoint_text(const char *host, int port, char text[TT__NET_ENDPOINT_SIZE]) {
    bool brackets = strchr(host, ':') && host[0] != '[';
    snprintf(text, TT__NET_ENDPOINT_SIZE, "%s%.255s%s:%d", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

const char *tt__net_bare_host(const char *host, char bare[TT__NET_HOST_SIZE]) {
    size_t n = strlen(host);
    if (n < 3 || n >= TT__NET_HOST_SIZE || host[0] != '[' || host[n - 1] != ']' || !strchr(host, ':'))
        return host;
    memcpy(bare, host + 1, n - 2);
    bare[n - 2] = '\0';
    return bare;
}

/* Is this an IPv6 address, perhaps with an interface: "fe80::1%eth0"? */
static bool is_ipv6_address(const char *text, size_t n) {
    char address[INET6_ADDRSTRLEN];
    struct in6_addr in6;
    const char *percent = memchr(text, '%', n);
    size_t length = percent ? (size_t)(percent - text) : n;
    if (length >= sizeof address)
        return false;
    memcpy(address, text, length);
    address[length] = '\0';
    return inet_pton(AF_INET6, address, &in6) == 1;
}

bool tt__net_split_endpoint(const char *endpoint, char *host, size_t size, const char **port) {
    size_t n = strlen(endpoint), skip = endpoint[0] == '[';
    const char *end = skip                           ? strchr(endpoint, ']')
                      : is_ipv6_address(endpoint, n) ? endpoint + n
                                                     : strrchr(endpoint, ':');
    if (!end && !skip)
        end = endpoint + n;
    size_t length = end ? (size_t)(end - endpoint) - skip : 0;
    bool colons = length && memchr(endpoint + skip, ':', length);
    if (!length || length >= size || (colons && !is_ipv6_address(endpoint + skip, length)))
        return false;
    if (skip && end[1] && end[1] != ':')
        return false;
    memcpy(host, endpoint + skip, length);
    host[length] = '\0';
    *port = end[skip] == ':' ? end + skip + 1 : NULL;
    return true;
}

/* Turn IPv4-mapped addresses into IPv4 ones, because our IPv6 sockets serve IPv6 alone. */
static void unmap_all(struct addrinfo *list) {
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        struct sockaddr_storage address = {0};
        if (a->ai_family != AF_INET6 || a->ai_addrlen > sizeof address)
            continue;
        memcpy(&address, a->ai_addr, a->ai_addrlen);
        tt__net_unmap(&address);
        if (address.ss_family != AF_INET)
            continue;
        a->ai_family = AF_INET;
        a->ai_addrlen = sizeof(struct sockaddr_in);
        memcpy(a->ai_addr, &address, a->ai_addrlen);
    }
}

int tt__net_resolve(const char *host, const char *service, int flags, struct addrinfo **list) {
    char bare[TT__NET_HOST_SIZE];
    if (host)
        host = tt__net_bare_host(host, bare);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    int error = getaddrinfo(host, service, &hints, list);
    /* Containers and fresh installations may lack /etc/hosts; the name has one meaning only (RFC 6761, section 6.3). */
    if (error && host && !strcmp(host, "localhost"))
        error = getaddrinfo("127.0.0.1", service, &hints, list);
    if (!error)
        unmap_all(*list);
    return error;
}

/* ---- interfaces ---- */

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
