#include "net/job/job_socket.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/random_bytes.h"
#include "base/setting.h"
#include "base/text/plain_text.h"
#include "net/local_socket.h"
#include "net/secure/secret.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MAGIC = UINT64_C(0x32626f4a74747554); /* "TuttJob2" */

static bool may_launch_for_us(uid_t user) { return user == geteuid() || user == 0; }

static tt_status check_launchers_user(int fd, const char *name) {
    uid_t user;
    if (!tt__local_peer_user(fd, &user))
        return tt__fail_errno(TT_ERR_SYSTEM, errno,
                              "can't find out whose launcher is at \"%s\": getsockopt(SO_PEERCRED)", name);
    return may_launch_for_us(user) ? TT_OK
                                   : tt__fail(TT_ERR_AUTH, "the launcher at \"%s\" belongs to another user", name);
}

tt_status tt__job_socket_name(char name[TT__JOB_NAME_SIZE]) {
    uint64_t nonce;
    TT__TRY(tt__random_bytes(&nonce, sizeof nonce));
    snprintf(name, TT__JOB_NAME_SIZE, TT__JOB_SOCKET_PREFIX "%d/%016llx", (int)getpid(), (unsigned long long)nonce);
    return TT_OK;
}

tt_status tt__job_socket_listen(int *fd, const char *name) {
    struct sockaddr_un address;
    socklen_t length = tt__abstract_address(&address, name);
    *fd = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (*fd >= 0 && !bind(*fd, (struct sockaddr *)&address, length) && !listen(*fd, 128))
        return TT_OK;
    int errnum = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't make the job's socket");
}

void tt__job_refuse(int fd, const char *why) {
    tt__job_packet packet;
    memset(&packet, 0, sizeof packet); /* padding, too: a stranger reads it */
    snprintf(packet.refusal.why, sizeof packet.refusal.why, "%s", why);
    tt__job_send(fd, TT__JOB_REFUSED, &packet, -1);
    close(fd);
}

/* Is this caller served? If not, `why` becomes the reason. */
static bool is_served_here(int fd, char *why, size_t size) {
    uid_t user;
    if (!tt__local_peer_user(fd, &user)) {
        snprintf(why, size, "whose it is can't be found out: getsockopt(SO_PEERCRED): %s", strerror(errno));
        return false;
    }
    snprintf(why, size, "it is user %u's; served are user %u's and root's", (unsigned)user, (unsigned)geteuid());
    return may_launch_for_us(user);
}

int tt__job_socket_accept(int listener) {
    static _Atomic bool told;
    char why[160];
    int fd = tt__fd(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd < 0 || is_served_here(fd, why, sizeof why))
        return fd;
    if (!atomic_exchange(&told, true))
        tt__log(TT_LOG_WARNING,
                "a process (pid %d) that called the job's socket was refused, as others will be, which is not told "
                "again: %s. Of ranks that run as another user little is seen",
                (int)tt__job_socket_peer(fd), why);
    tt__job_refuse(fd, why);
    return -1;
}

tt_status tt__job_socket_connect(int *fd, const char *name, int64_t timeout_ms) {
    struct sockaddr_un address;
    struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    socklen_t length = tt__abstract_address(&address, name);
    int s = *fd = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (s < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make a Unix socket");
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    tt_status status = TT_OK;
    if (connect(s, (struct sockaddr *)&address, length))
        status = tt__fail_errno(TT_ERR_NOT_FOUND, errno, "no launcher answers at \"%s\"", name);
    else
        status = check_launchers_user(s, name);
    if (!status)
        return TT_OK;
    close(s);
    *fd = -1;
    return status;
}

int64_t tt__job_crash_ms(void) { return (int64_t)(tt__setting_seconds(TT__CRASH_STACKS) * 1000); }

pid_t tt__job_socket_peer(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid < 0 ? 0 : peer.pid;
}

bool tt__job_send(int fd, tt__job_kind kind, tt__job_packet *packet, int attached) {
    packet->magic = MAGIC;
    packet->kind = kind;
    return tt__send_packet(fd, packet, sizeof *packet, attached);
}

bool tt__job_hand_over(int fd, tt__job_kind kind, tt__job_packet *packet, int attached, int64_t patience_ms) {
    int64_t deadline_ms = tt__deadline_ms(patience_ms);
    bool sent;
    while (!(sent = tt__job_send(fd, kind, packet, attached)) && errno == ETOOMANYREFS && tt__left_ms(deadline_ms))
        tt__sleep_ms(1);
    return sent;
}

int tt__job_receive(int fd, tt__job_packet *packet, int *attached) {
    ssize_t n = tt__receive_packet(fd, packet, sizeof *packet, 0, attached);
    if (n < 0 &&
        errno == ECONNRESET) /* the other side has closed without reading what was sent, but its reason may be there */
        n = tt__receive_packet(fd, packet, sizeof *packet, 0, attached);
    int failed = n < 0 ? errno : 0;
    bool good = n == (ssize_t)sizeof *packet && packet->magic == MAGIC;
    if (good && packet->kind != TT__JOB_REFUSED)
        return 1;
    if (!good)
        packet->kind = 0;
    if (failed)
        return failed == EAGAIN || failed == EWOULDBLOCK ? 0 : -1;
    if (*attached >= 0)
        close(*attached);
    *attached = -1;
    return -1;
}

tt_status tt__job_fail_ended(const tt__job_packet *packet, const char *who) {
    char why[sizeof packet->refusal.why + 1] = "";
    if (packet->kind != TT__JOB_REFUSED)
        return tt__fail(TT_ERR_NET, "%s has ended", who);
    memcpy(why, packet->refusal.why, sizeof packet->refusal.why);
    tt__make_plain_name(why);
    return tt__fail(TT_ERR_AUTH, "%s refuses this process: %s", who, why);
}
