/* Several "hosts" on one machine: network name spaces, joined by veth pairs and a bridge.
 *
 *      lab: the test itself          10.77.0.100, fd77::100 on bridge br0
 *        h0 |      h1 |      h2 |    one port of the bridge a host; cutting a host is taking its port down
 *      eth0 |    eth0 |    eth0 |
 *     host 0    host 1    host 2     10.77.0.1, fd77::1      10.77.0.2, fd77::2      ...
 *
 * None of it has a name outside: it vanishes with the last process and descriptor that holds it, also when the test is
 * killed. Addresses and ports are the lab's own, so tests side by side don't meet.
 *
 * The test's process lives in the lab. A forked rank enters its host by netlab_enter(), after it has connected to what
 * must outlive a cut link (the test's store). Needs root or unprivileged user name spaces, iproute2, and a kernel with
 * veth, bridge (and tbf for a rate). */
#ifndef TESTS_SUPPORT_NETLAB_H
#define TESTS_SUPPORT_NETLAB_H

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NETLAB_HOSTS = 8 };

typedef struct netlab {
    int hosts;
    int space[NETLAB_HOSTS]; /* descriptors of the hosts' name spaces */
    int home, lab;           /* descriptors of the test's former name space, and of the lab's */
    int control;             /* a socket in the lab, for ioctl */
} netlab;

static inline bool netlab_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

/* Move this process to a new network name space; without the right to one, inside a new user name space, as its
 * root. */
static inline bool netlab_unshare(void) {
    char uids[32], gids[32];
    snprintf(uids, sizeof uids, "0 %u 1", (unsigned)geteuid());
    snprintf(gids, sizeof gids, "0 %u 1", (unsigned)getegid());
    if (!unshare(CLONE_NEWNET))
        return true;
    return errno == EPERM && !unshare(CLONE_NEWUSER | CLONE_NEWNET) && netlab_write("/proc/self/setgroups", "deny") &&
           netlab_write("/proc/self/uid_map", uids) && netlab_write("/proc/self/gid_map", gids);
}

/* Commands for `ip` or `tc`, one a line. */
__attribute__((format(printf, 2, 3))) static inline bool netlab_batch(const char *tool, const char *format, ...) {
    char command[64];
    va_list arguments;
    snprintf(command, sizeof command, "PATH=$PATH:/sbin:/usr/sbin exec %s -batch -", tool);
    FILE *pipe = popen(command, "w");
    if (!pipe)
        return false;
    va_start(arguments, format);
    vfprintf(pipe, format, arguments);
    va_end(arguments);
    return pclose(pipe) == 0;
}

static inline int netlab_here(void) { return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }

static inline bool netlab_make_bridge(void) {
    return netlab_batch("ip", "link set lo up\n"
                              "link add br0 type bridge mcast_snooping 0\n"
                              "addr add 10.77.0.100/24 dev br0\n"
                              "addr add fd77::100/64 dev br0 nodad\n"
                              "link set br0 up\n");
}

/* Make host h. On return the caller is in the lab again. */
static inline bool netlab_make_host(netlab *lab, int h) {
    if (unshare(CLONE_NEWNET))
        return false;
    lab->space[h] = netlab_here();
    if (lab->space[h] < 0 || setns(lab->lab, CLONE_NEWNET))
        return false;
    return netlab_batch("ip",
                        "link add h%d type veth peer name p%d\n"
                        "link set h%d master br0 up\n"
                        "link set p%d netns /proc/%d/fd/%d name eth0\n",
                        h, h, h, h, (int)getpid(), lab->space[h]) &&
           !setns(lab->space[h], CLONE_NEWNET) &&
           netlab_batch("ip",
                        "link set lo up\n"
                        "addr add 10.77.0.%d/24 dev eth0\n"
                        "addr add fd77::%d/64 dev eth0 nodad\n"
                        "link set eth0 up\n",
                        h + 1, h + 1) &&
           !setns(lab->lab, CLONE_NEWNET);
}

/* Limit what host h sends and receives: "1gbit". */
static inline bool netlab_rate(const netlab *lab, int h, const char *rate) {
    const char *limit = "qdisc replace dev %s root tbf rate %s burst 256kb latency 100ms\n";
    char port[16], lines[2][128];
    snprintf(port, sizeof port, "h%d", h);
    snprintf(lines[0], sizeof lines[0], limit, port, rate);
    snprintf(lines[1], sizeof lines[1], limit, "eth0", rate);
    return netlab_batch("tc", "%s", lines[0]) && !setns(lab->space[h], CLONE_NEWNET) &&
           netlab_batch("tc", "%s", lines[1]) && !setns(lab->lab, CLONE_NEWNET);
}

/* Forget failed address look-ups, which would be repeated only a second later. */
static inline bool netlab_forget_neighbours(const netlab *lab) {
    bool done = true;
    for (int h = 0; h < lab->hosts; h++)
        done &= !setns(lab->space[h], CLONE_NEWNET) && netlab_batch("ip", "neigh flush dev eth0\n");
    return !setns(lab->lab, CLONE_NEWNET) && done;
}

/* Take host h off the network (`up` false), or bring it back. */
static inline bool netlab_link(const netlab *lab, int h, bool up) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "h%d", h);
    if (ioctl(lab->control, SIOCGIFFLAGS, &request))
        return false;
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    return !ioctl(lab->control, SIOCSIFFLAGS, &request) && (!up || netlab_forget_neighbours(lab));
}

/* A rank moves to host h, which has a host name of its own: "host1". */
static inline bool netlab_enter(const netlab *lab, int h) {
    char name[16];
    int n = snprintf(name, sizeof name, "host%d", h);
    return !setns(lab->space[h], CLONE_NEWNET) && !unshare(CLONE_NEWUTS) && !sethostname(name, (size_t)n);
}

/* Leave the lab; it is gone when its ranks are. */
static inline void netlab_close(netlab *lab) {
    if (lab->home >= 0)
        setns(lab->home, CLONE_NEWNET);
    int *fds[] = {&lab->home, &lab->lab, &lab->control};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (*fds[i] >= 0)
            close(*fds[i]);
    for (int h = 0; h < lab->hosts; h++)
        if (lab->space[h] >= 0)
            close(lab->space[h]);
    *lab = (netlab){.home = -1, .lab = -1, .control = -1};
}

/* Build a lab and move there. Call it before threads exist. Returns NULL, or why there can be none here (nothing is
 * left then). */
static inline const char *netlab_open(netlab *lab, int hosts) {
    *lab = (netlab){.hosts = hosts, .home = netlab_here(), .lab = -1, .control = -1};
    memset(lab->space, -1, sizeof lab->space);
    const char *why = NULL;
    if (system("PATH=$PATH:/sbin:/usr/sbin ip -V >/dev/null 2>&1"))
        why = "iproute2 is not installed";
    else if (!netlab_unshare())
        why = "network name spaces need root, or unprivileged user name spaces";
    else if ((lab->lab = netlab_here()) < 0 || !netlab_make_bridge())
        why = "this kernel can't make a bridge";
    for (int h = 0; h < hosts && !why; h++)
        if (!netlab_make_host(lab, h))
            why = "this kernel can't make a veth pair";
    if (!why && (lab->control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        why = "no socket";
    if (why)
        netlab_close(lab);
    return why;
}

#endif
