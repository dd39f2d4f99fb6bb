#include "cli/run/run_health.h"

#include "base/error.h"
#include "base/fd.h"
#include "base/parse.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define VARIABLE "TORCHELASTIC_HEALTH_CHECK_PORT"

static const char *port_name(const tt__run_flags *flags) {
    return flags->health_check_port ? "--health-check-port" : VARIABLE;
}

/* *port: -1 = none is wanted. */
static tt_status read_health_port(int64_t *port, const tt__run_flags *flags) {
    const char *inherited = secure_getenv(VARIABLE),
               *text = flags->health_check_port ? flags->health_check_port : inherited;
    *port = -1;
    if (text && (*text || flags->health_check_port))
        TT__TRY(tt__parse_i64(port_name(flags), text, 0, 65535, port));
    return TT_OK;
}

tt_status tt__run_health_check(const tt__run_flags *flags) {
    int64_t port;
    return read_health_port(&port, flags);
}

/* Listen at the port on all addresses, those of IPv4 with those of IPv6 where there are both. -1 and errno. */
static int listen_everywhere(int family, int port) {
    const int off = 0, on = 1;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const void *address = family == AF_INET6 ? (const void *)&six : &four;
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    int fd = tt__fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (!bind(fd, address, size) && !listen(fd, 64))
        return fd;
    int errnum = errno;
    close(fd);
    errno = errnum;
    return -1;
}

static int bound_health_port(int fd) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size))
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

tt_status tt__run_health_listen(tt__job *job, const tt__run_flags *flags) {
    int64_t wanted;
    TT__TRY(read_health_port(&wanted, flags));
    int port = (int)wanted;
    if (port < 0)
        return TT_OK;
    job->health = listen_everywhere(AF_INET6, port);
    if (job->health < 0 && errno != EADDRINUSE && errno != EACCES)
        job->health = listen_everywhere(AF_INET, port);
    if (job->health < 0 && errno == EADDRINUSE)
        return tt__fail_errno(TT_ERR_SYSTEM, errno,
                              "%s: port %d is taken by another program, or another job's launcher", port_name(flags),
                              port);
    if (job->health < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "%s: can't listen at port %d", port_name(flags), port);
    if (!port)
        tt__cli_note("run", "health checks are answered at port %d", bound_health_port(job->health));
    return TT_OK;
}
