/* Which rank this process would be, and whether it could meet the others. */
#include "cli/doctor/doctor.h"

#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "net/net.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 2000 };

/* ---- the launcher */

/* Joining fails where only one of RANK and WORLD_SIZE is set, also with .or_alone. */
static bool check_half_set(tt__doctor *doctor) {
    const char *rank = doctor->environment->get(doctor->environment, "RANK");
    const char *world = doctor->environment->get(doctor->environment, "WORLD_SIZE");
    if (doctor->launched.name || (!rank && !world))
        return false;
    tt__doctor_add(doctor, "launcher", TT__BAD, "none is recognised: %s is set, but %s is not",
                   rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
    tt__doctor_fix(doctor, "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them");
    return true;
}

static void check_launcher(tt__doctor *doctor) {
    tt__launched *l = &doctor->launched;
    char local[64] = "";
    if (tt__launched_look(doctor->environment, l)) {
        *l = (tt__launched){.local_rank = -1};
        tt__doctor_add(doctor, "launcher", TT__BAD, "%s", tt_last_error());
        tt__doctor_fix(doctor,
                       "start the program with `tutti run`, srun or mpirun; or set RANK, WORLD_SIZE, MASTER_ADDR "
                       "and MASTER_PORT yourself");
        return;
    }
    if (check_half_set(doctor))
        return;
    if (!l->name) {
        tt__doctor_add(doctor, "launcher", l->wanted_several ? TT__BAD : TT__FINE, "none is recognised%s%s",
                       *l->saw ? ": " : "", l->saw);
        tt__doctor_fix(doctor, "%s%s", l->to_do ? l->to_do : "",
                       l->wanted_several ? ""
                       : l->to_do        ? "; without it a program is a world of one, if it asks for that (.or_alone)"
                                  : "a program here is a world of one if it asks for that (.or_alone); `tutti run "
                                    "--nproc-per-node=N PROGRAM` starts several ranks");
        return;
    }
    if (l->local_rank >= 0 && l->local_world)
        snprintf(local, sizeof local, ", %d of %d on this host", l->local_rank, l->local_world);
    tt__doctor_add(doctor, "launcher", TT__FINE, "%s (%s, %s): rank %d of %d%s", l->name, l->rank_name, l->size_name,
                   l->rank, l->world, local);
}

/* ---- a place */

/* Try to connect to an address. Returns 0, or errno. */
static int ask_address(const struct addrinfo *at) {
    int fd = tt__fd(socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0)
        return errno;
    if (connect(fd, at->ai_addr, at->ai_addrlen) && errno != EINPROGRESS)
        error = errno;
    else if (poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, ANSWER_MS) != 1)
        error = ETIMEDOUT;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    close(fd);
    return error;
}

/* Did the host answer that nobody serves there? A server that is closing resets connections. */
static bool is_unserved(int error) { return error == ECONNREFUSED || error == ECONNRESET; }

static int ask_addresses(const struct addrinfo *list) {
    int error = EHOSTUNREACH;
    for (; list; list = list->ai_next) {
        error = ask_address(list);
        if (!error || is_unserved(error))
            break;
    }
    return error;
}

/* Find a host's addresses; NULL after a finding. */
static struct addrinfo *resolve(tt__doctor *doctor, const char *check, const char *host, int port) {
    char service[16];
    struct addrinfo *list = NULL;
    snprintf(service, sizeof service, "%d", port);
    int error = tt__net_resolve(host, service, 0, &list);
    if (!error)
        return list;
    tt__doctor_add(doctor, check, TT__BAD, "the host %.200s is unknown here: %s", host, gai_strerror(error));
    tt__doctor_fix(doctor,
                   "give a name or an address by which all nodes know that host (MASTER_ADDR, or "
                   "--rdzv-endpoint); getent hosts %.100s shows what this one knows",
                   host);
    return NULL;
}

/* Can this process, which is rank 0, serve the place? */
static void check_serving(tt__doctor *doctor, const tt__meeting *meeting) {
    int fds[16], bound;
    size_t n = 0;
    if (tt__net_listen(meeting->host, meeting->port, fds, sizeof fds / sizeof *fds, &n, &bound)) {
        tt__doctor_add(doctor, "meeting place", TT__BAD, "rank 0 could not serve it: %s", tt_last_error());
        tt__doctor_fix(doctor, "MASTER_ADDR must be a name or an address of rank 0's host, and MASTER_PORT a port that "
                               "is free there, as another from 10000 to 29999 may be");
        return;
    }
    while (n)
        close(fds[--n]);
    tt__doctor_add(doctor, "meeting place", TT__FINE, "%s:%d is free, and rank 0 can serve it", meeting->host,
                   meeting->port);
}

/* Can the place, which another process serves, be reached? now: that process serves it already. */
static void check_reaching(tt__doctor *doctor, const char *check, const char *host, int port, bool now) {
    struct addrinfo *list = resolve(doctor, check, host, port);
    int error = list ? ask_addresses(list) : 0;
    if (!list)
        return;
    freeaddrinfo(list);
    if (!error)
        tt__doctor_add(doctor, check, TT__FINE, "%s:%d answers", host, port);
    else if (is_unserved(error) && !now)
        tt__doctor_add(doctor, check, TT__FINE, "the host of %s:%d answers; rank 0 does not serve there yet", host,
                       port);
    else if (is_unserved(error)) {
        tt__doctor_add(doctor, check, TT__BAD, "the host of %s:%d answers, but nobody serves there", host, port);
        tt__doctor_fix(doctor, "start `tutti run` on node 0 first, or `tutti store`; and look whether the port is the "
                               "same on both sides");
    } else {
        tt__doctor_add(doctor, check, now ? TT__BAD : TT__DOUBTFUL, "%s:%d can't be reached: %s", host, port,
                       strerror(error));
        tt__doctor_fix(doctor, "is the host up, is it the right address, and does a firewall let this port through?");
    }
}

/* Several hosts can't meet at a loopback address. */
static bool check_loopback(tt__doctor *doctor, const tt__meeting *meeting) {
    struct addrinfo *list = NULL;
    bool loopback = true;
    if (!tt__doctor_several_hosts(doctor) || tt__net_resolve(meeting->host, NULL, 0, &list))
        return false;
    for (const struct addrinfo *at = list; at; at = at->ai_next)
        loopback = loopback && tt__net_is_loopback(at->ai_addr);
    freeaddrinfo(list);
    if (!loopback || meeting->serves)
        return false;
    tt__doctor_add(doctor, "meeting place", TT__BAD, "%s is this host itself, but rank 0 may be on another",
                   meeting->host);
    tt__doctor_fix(doctor, "set MASTER_ADDR, alike for all ranks, to a name of rank 0's host that is not loopback "
                           "there");
    return true;
}

static void check_meeting(tt__doctor *doctor) {
    tt__meeting meeting;
    const tt_init_process_group_args args = {.or_alone = true};
    if (!doctor->launched.name)
        return;
    if (tt__meeting_from_env(doctor->environment, &meeting, &args)) {
        tt__doctor_add(doctor, "meeting place", TT__BAD, "%s", tt_last_error());
        tt__doctor_fix(doctor, "set MASTER_ADDR to a name of rank 0's host and MASTER_PORT to a free port there, alike "
                               "for all ranks");
        return;
    }
    if (meeting.world == 1) {
        tt__doctor_add(doctor, "meeting place", TT__FINE, "a world of one needs none");
        return;
    }
    if (*meeting.path) {
        char folder[sizeof meeting.path];
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(meeting.path, '/') - meeting.path), meeting.path);
        bool may = !access(folder, W_OK | X_OK);
        tt__doctor_add(doctor, "meeting place", may ? TT__FINE : TT__BAD, "the file %.300s (%s)%s", meeting.path,
                       meeting.whence, may ? "" : ": its folder can't be written to");
        if (!may)
            tt__doctor_fix(doctor, "set TMPDIR to a folder that can be written to, alike for all ranks");
        return;
    }
    if (meeting.whence)
        tt__doctor_add(doctor, "meeting place", TT__FINE, "%s:%d: %s", meeting.host, meeting.port, meeting.whence);
    if (check_loopback(doctor, &meeting))
        return;
    if (meeting.serves)
        check_serving(doctor, &meeting);
    else
        check_reaching(doctor, "meeting place", meeting.host, meeting.port,
                       tt__agent_serves_store(meeting.host, meeting.port));
}

/* ---- the endpoint */

static void check_endpoint(tt__doctor *doctor, const char *endpoint) {
    char name[TT__NET_HOST_SIZE];
    const char *number = NULL;
    char *end = NULL;
    bool is_good = tt__net_split_endpoint(endpoint, name, sizeof name, &number);
    long port = is_good && number ? strtol(number, &end, 10) : 0;
    if (port < 1 || port > 65535 || *end) {
        tt__doctor_add(doctor, "endpoint", TT__BAD, "expected HOST:PORT, got \"%.100s\"", endpoint);
        tt__doctor_fix(doctor, "give --rdzv-endpoint as `tutti run` is given it: node0.example.org:29500");
        return;
    }
    int before = doctor->n;
    check_reaching(doctor, "endpoint", name, (int)port, true);
    if (doctor->findings[before].verdict != TT__FINE)
        return;
    tt_store *store = NULL;
    int64_t start_ns = tt__now_ns();
    if (tt_tcp_store(&store, name, (int)port, .timeout_ms = ANSWER_MS)) {
        tt__doctor_add(doctor, "endpoint", TT__BAD, "%s", tt_last_error());
        tt__doctor_fix(doctor, "set the same TT_SECRET_FILE as where the store is served; it must be Tutti's or "
                               "PyTorch's");
        return;
    }
    tt__doctor_add(doctor, "endpoint", TT__FINE, "a store serves this process there; it joined within %.1f ms",
                   (double)(tt__now_ns() - start_ns) / 1e6);
    tt_store_free(store);
}

void tt__doctor_place(tt__doctor *doctor, const char *endpoint) {
    check_launcher(doctor);
    check_meeting(doctor);
    if (endpoint)
        check_endpoint(doctor, endpoint);
}
