/* Names to addresses. */
#include "net/net.h"

#include <string.h>

const char *tt__net_bare_host(const char *host, char bare[TT__NET_HOST_SIZE]) {
    size_t n = strlen(host);
    if (n < 3 || n >= TT__NET_HOST_SIZE || host[0] != '[' || host[n - 1] != ']' || !strchr(host, ':'))
        return host;
    memcpy(bare, host + 1, n - 2);
    bare[n - 2] = '\0';
    return bare;
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
    return error;
}
