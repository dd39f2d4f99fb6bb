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
    bool brackets = strchr(host, ':') != NULL;
    snprintf(text, TT__NET_ENDPOINT_SIZE, "%s%.255s%s:%d", brackets ? "[" : "", host, brackets ? "]" : "", port);
}
