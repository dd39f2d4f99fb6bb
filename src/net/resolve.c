/* Names to addresses. */
#include "net/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

const char *tt__net_bare_host(const char *host, char bare[TT__NET_HOST_SIZE]) {
    size_t n = strlen(host);
    if (n < 3 || n >= TT__NET_HOST_SIZE || host[0] != '[' || host[n - 1] != ']' || !strchr(host, ':'))
        return host;
    memcpy(bare, host + 1, n - 2);
    bare[n - 2] = '\0';
    return bare;
}

/* An IPv6 address, perhaps with an interface: "fe80::1%eth0". */
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

/* Sockets for IPv6 here serve IPv6 alone. */
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
