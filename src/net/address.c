#include "net/net.h"

#include <arpa/inet.h>
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
