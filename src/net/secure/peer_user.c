#include "net/secure/peer_user.h"

#include "base/files/fd.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* A connection as its other end sees it, in network byte order. IPv4: only the first word of an address is used. */
typedef struct pair {
    int family;
    uint32_t from[4], to[4];
    uint16_t from_port, to_port;
} pair;

static void take_address(const struct sockaddr_storage *address, uint32_t words[4], uint16_t *port) {
    struct sockaddr_in6 in6;
    struct sockaddr_in in4;
    memcpy(&in6, address, sizeof in6);
    memcpy(&in4, address, sizeof in4);
    if (address->ss_family == AF_INET6)
        memcpy(words, &in6.sin6_addr, 16);
    else
        memcpy(words, &in4.sin_addr, 4);
    *port = address->ss_family == AF_INET6 ? in6.sin6_port : in4.sin_port;
}

/* A connection between IPv4-mapped addresses is one of IPv4. */
static void unmap_pair(pair *p) {
    const uint32_t mapped[3] = {0, 0, htonl(0xffff)};
    if (p->family != AF_INET6 || memcmp(p->from, mapped, sizeof mapped) != 0 || memcmp(p->to, mapped, sizeof mapped))
        return;
    *p = (pair){AF_INET, {p->from[3]}, {p->to[3]}, p->from_port, p->to_port};
}

static bool pair_of(int fd, pair *p) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    *p = (pair){0};
    if (getsockname(fd, (struct sockaddr *)&here, &here_size) ||
        getpeername(fd, (struct sockaddr *)&there, &there_size))
        return false;
    p->family = there.ss_family;
    take_address(&there, p->from, &p->from_port);
    take_address(&here, p->to, &p->to_port);
    unmap_pair(p);
    return here.ss_family == there.ss_family && (p->family == AF_INET || p->family == AF_INET6);
}

/* ---- sock_diag: one question about one socket */

typedef struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 request;
} question;

static question ask_about(const pair *p) {
    static _Atomic uint32_t asked;
    question q = {
        .head = {.nlmsg_len = sizeof q,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = ++asked},
        .request = {.sdiag_family = (uint8_t)p->family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u},
    };
    struct inet_diag_sockid *id = &q.request.id;
    id->idiag_sport = p->from_port;
    id->idiag_dport = p->to_port;
    memcpy(id->idiag_src, p->from, sizeof p->from);
    memcpy(id->idiag_dst, p->to, sizeof p->to);
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return q;
}

/* A socket without an inode has been closed by its owner; the kernel then names root as its user. */
static bool owner_of(const struct inet_diag_msg *found, uid_t *user) {
    *user = found->idiag_uid;
    return found->idiag_inode != 0;
}

typedef enum answer { KNOWN, NOT_THERE, NO_ANSWER } answer;

static answer ask_diag(int netlink, const pair *p, uid_t *user) {
    union {
        struct nlmsghdr head;
        char bytes[1024];
    } reply;
    question q = ask_about(p);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(netlink, &q, sizeof q, MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof kernel) != sizeof q)
        return NO_ANSWER;
    ssize_t n;
    do /* the answer is there when sendto() returns, perhaps behind the answer to an earlier question */
        n = recv(netlink, &reply, sizeof reply, MSG_DONTWAIT);
    while (n >= (ssize_t)sizeof reply.head && reply.head.nlmsg_seq != q.head.nlmsg_seq);
    if (n < (ssize_t)sizeof reply.head)
        return NO_ANSWER;
    if (reply.head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
        struct nlmsgerr error;
        memcpy(&error, NLMSG_DATA(&reply.head), sizeof error);
        return error.error == -ENOENT ? NOT_THERE : NO_ANSWER; /* any other error: the kernel has no sock_diag */
    }
    if (reply.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return NO_ANSWER;
    struct inet_diag_msg found;
    memcpy(&found, NLMSG_DATA(&reply.head), sizeof found);
    return owner_of(&found, user) ? KNOWN : NOT_THERE;
}

/* ---- /proc: a line for each socket */

/* Write an address as /proc does: words of the machine's byte order, and the port. */
static void proc_address(const uint32_t *words, int n, uint16_t port, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, size - used, "%08X", (unsigned)words[i]);
    snprintf(text + used, size - used, ":%04X", ntohs(port));
}

static bool find_line(const char *path, const char *from, const char *to, uid_t *user) {
    char line[512], local[64], remote[64];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned uid = 0;
        unsigned long inode = 0;
        if (sscanf(line, " %*[^:]: %63s %63s %*s %*s %*s %*s %u %*s %lu", local, remote, &uid, &inode) == 4 && inode &&
            !strcmp(local, from) && !strcmp(remote, to)) {
            found = true;
            *user = (uid_t)uid;
        }
    }
    if (file)
        fclose(file);
    return found;
}

/* An IPv6 socket may have an IPv4 connection, listed with mapped addresses. */
static bool ask_proc(const pair *p, uid_t *user) {
    char from[64], to[64];
    if (p->family == AF_INET) {
        proc_address(p->from, 1, p->from_port, from, sizeof from);
        proc_address(p->to, 1, p->to_port, to, sizeof to);
        if (find_line("/proc/self/net/tcp", from, to, user))
            return true;
        const uint32_t mapped_from[4] = {0, 0, htonl(0xffff), p->from[0]},
                       mapped_to[4] = {0, 0, htonl(0xffff), p->to[0]};
        proc_address(mapped_from, 4, p->from_port, from, sizeof from);
        proc_address(mapped_to, 4, p->to_port, to, sizeof to);
    } else {
        proc_address(p->from, 4, p->from_port, from, sizeof from);
        proc_address(p->to, 4, p->to_port, to, sizeof to);
    }
    return find_line("/proc/self/net/tcp6", from, to, user);
}

int tt__net_peer_user_begin(void) { return tt__fd(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)); }

bool tt__net_peer_user(int asking, int fd, uid_t *user) {
    pair p;
    if (!pair_of(fd, &p))
        return false;
    answer got = asking < 0 ? NO_ANSWER : ask_diag(asking, &p, user);
    return got == KNOWN || (got == NO_ANSWER && ask_proc(&p, user));
}
