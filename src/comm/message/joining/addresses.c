/* The token that lists a process's addresses, the order in which a peer tries them, and the listening socket.
 *
 * "4711/<32 hex digits>/10.0.0.2,fd00::2": port, a nonce that only readers of the store know, addresses. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/random_bytes.h"
#include "comm/message/joining/joining.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_chosen(const tt__interface *interface, bool only_local, const char *filter) {
    if (only_local)
        return interface->loopback;
    return !interface->loopback && tt__interface_passes(filter, interface->name);
}

static size_t put_address(const tt__interface *interface, char *text, size_t size) {
    char name[INET6_ADDRSTRLEN];
    const struct sockaddr *address = (const struct sockaddr *)&interface->address;
    const void *bytes = address->sa_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (!inet_ntop(address->sa_family, bytes, name, sizeof name) || strlen(name) + 2 > size)
        return 0;
    return (size_t)snprintf(text, size, "%s%s", text[-1] == '/' ? "" : ",", name);
}

static tt_status fail_no_address(const char *filter, int errnum) {
    if (errnum)
        return tt__fail_errno(TT_ERR_NET, errnum, "can't list this host's addresses");
    if (filter && *filter)
        return tt__fail(TT_ERR_NET,
                        "TT_SOCKET_IFNAME is \"%.100s\", but no interface that is up, loopback aside, has such a name",
                        filter);
    return tt__fail(TT_ERR_NET, "this host has no address by which others could reach it (ip address shows them)");
}

/* Describe by which addresses this process is reached, as tt__messages_listen() does. */
static tt_status describe_addresses(int port, const uint8_t *nonce, int family, bool only_local, char *text) {
    tt__interface list[TT__INTERFACES_MAX];
    const char *filter = getenv("TT_SOCKET_IFNAME");
    size_t count = tt__interfaces(list, TT__INTERFACES_MAX), taken = 0;
    int errnum = count ? 0 : errno;
    size_t n = (size_t)snprintf(text, TT__ADDRESSES_SIZE, "%d/", port);
    for (int i = 0; i < TT__JOB_SIZE; i++)
        n += (size_t)snprintf(text + n, TT__ADDRESSES_SIZE - n, "%02x", nonce[i]);
    n += (size_t)snprintf(text + n, TT__ADDRESSES_SIZE - n, "/");
    /* Without any other address this machine is alone: loopback will do. */
    for (int alone = only_local; alone < 2 && !taken; alone++)
        for (size_t i = 0; i < count; i++) {
            bool other_family = family == AF_INET && list[i].address.ss_family != AF_INET;
            if (other_family || !is_chosen(&list[i], alone, filter) || (alone && !only_local && filter && *filter))
                continue;
            size_t length = put_address(&list[i], text + n, TT__ADDRESSES_SIZE - n);
            n += length;
            taken += length > 0;
        }
    return taken ? TT_OK : fail_no_address(filter, errnum);
}

/* ---- reading */

static bool parse_candidate(const char *text, size_t length, int port, tt__candidate *candidate) {
    char name[INET6_ADDRSTRLEN];
    struct sockaddr_in *in4 = (struct sockaddr_in *)(void *)&candidate->address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&candidate->address;
    if (length >= sizeof name)
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    memset(candidate, 0, sizeof *candidate);
    if (inet_pton(AF_INET, name, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
        in4->sin_port = htons((uint16_t)port);
        candidate->size = sizeof *in4;
    } else if (inet_pton(AF_INET6, name, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        candidate->size = sizeof *in6;
    }
    tt__net_address_text((const struct sockaddr *)&candidate->address, candidate->text);
    return candidate->size;
}

/* Rank a peer's address: 0 in a subnet of this host, 1 elsewhere, 2 an address of this host, hardly another host's. */
static int preference_of(const tt__candidate *candidate, const tt__interface *list, size_t count) {
    const struct sockaddr *address = (const struct sockaddr *)&candidate->address;
    int preference = 1;
    for (size_t i = 0; i < count; i++) {
        if (tt__interface_has(&list[i], address) && !tt__net_is_loopback(address))
            return 2;
        if (tt__interface_reaches(&list[i], address))
            preference = 0;
    }
    return preference;
}

/* Sort by preference; among equals the peer's own order stays. */
static void sort_candidates(tt__target *target) {
    tt__interface list[TT__INTERFACES_MAX];
    size_t count = tt__interfaces(list, TT__INTERFACES_MAX);
    tt__candidate sorted[TT__CANDIDATES];
    int n = 0;
    for (int preference = 0; preference < 3; preference++)
        for (int i = 0; i < target->count; i++)
            if (preference_of(&target->candidates[i], list, count) == preference)
                sorted[n++] = target->candidates[i];
    memcpy(target->candidates, sorted, (size_t)n * sizeof *sorted);
}

tt_status tt__addresses_read(const char *text, tt__target *target) {
    int port = 0, at = 0;
    target->count = 0;
    if (sscanf(text, "%d/%n", &port, &at) != 1 || !at || port < 1 || port > 65535)
        return tt__fail(TT_ERR_PROTOCOL, "rank %d describes its addresses as \"%.100s\"", target->rank, text);
    for (int i = 0; i < TT__JOB_SIZE; i++, at += 2) {
        unsigned byte;
        if (sscanf(text + at, "%2x", &byte) != 1)
            return tt__fail(TT_ERR_PROTOCOL, "rank %d describes its addresses as \"%.100s\"", target->rank, text);
        target->job[i] = (uint8_t)byte;
    }
    at += text[at] == '/';
    while (text[at] && target->count < TT__CANDIDATES) {
        size_t length = strcspn(text + at, ",");
        target->count += parse_candidate(text + at, length, port, &target->candidates[target->count]);
        at += (int)length;
        at += text[at] == ',';
    }
    sort_candidates(target);
    return TT_OK;
}

const char *tt__interface_of(int fd, char *name, size_t size) {
    tt__interface list[TT__INTERFACES_MAX];
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    size_t count = tt__interfaces(list, TT__INTERFACES_MAX);
    snprintf(name, size, "?");
    if (getsockname(fd, (struct sockaddr *)&own, &length))
        return name;
    tt__net_unmap(&own);
    for (size_t i = 0; i < count; i++)
        if (tt__interface_has(&list[i], (const struct sockaddr *)&own)) {
            snprintf(name, size, "%s", list[i].name);
            return name;
        }
    return name;
}

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
    TT__TRY(describe_addresses(port, messages->nonce, family, only_local, messages->addresses));
    memcpy(addresses, messages->addresses, TT__ADDRESSES_SIZE);
    return TT_OK;
}
