/* Listening for the peers that connect to this rank. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/random_bytes.h"
#include "comm/message/joining/joining.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static int listen_at(int family, bool only_local, int *port) {
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    struct sockaddr_in *in4 = (struct sockaddr_in *)(void *)&address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&address;
    socklen_t size = family == AF_INET ? sizeof *in4 : sizeof *in6;
    if (family == AF_INET)
        in4->sin_addr.s_addr = htonl(only_local ? INADDR_LOOPBACK : INADDR_ANY);
    else
        in6->sin6_addr = only_local ? in6addr_loopback : in6addr_any;
    int fd = tt__fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){only_local}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&address, &size)) {
        int errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    *port = ntohs(family == AF_INET ? in4->sin_port : in6->sin6_port);
    return fd;
}

tt_status tt__messages_listen(tt__messages *messages, bool only_local, char addresses[TT__ADDRESSES_SIZE]) {
    /* Use one socket for both families where the system has IPv6; for loopback prefer IPv4. */
    int families[2] = {only_local ? AF_INET : AF_INET6, only_local ? AF_INET6 : AF_INET}, port = 0, family = 0;
    messages->one_host = only_local;
    TT__TRY(tt__random_bytes(messages->nonce, sizeof messages->nonce));
    for (int i = 0; i < 2 && messages->listener < 0; i++) {
        family = families[i];
        messages->listener = listen_at(family, only_local, &port);
    }
    if (messages->listener < 0)
        return tt__fail_errno(TT_ERR_NET, errno, "can't listen for the other ranks");
    TT__TRY(tt__addresses_describe(port, messages->nonce, family, only_local, messages->addresses));
    memcpy(addresses, messages->addresses, TT__ADDRESSES_SIZE);
    return TT_OK;
}
