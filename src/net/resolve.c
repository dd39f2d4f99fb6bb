/* Names to addresses. */
#include "net/net.h"

#include <string.h>

int tt__net_resolve(const char *host, const char *service, int flags, struct addrinfo **list) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    int error = getaddrinfo(host, service, &hints, list);
    /* Containers and fresh installations may lack /etc/hosts; the name has one meaning only (RFC 6761, section 6.3). */
    if (error && host && !strcmp(host, "localhost"))
        error = getaddrinfo("127.0.0.1", service, &hints, list);
    return error;
}
