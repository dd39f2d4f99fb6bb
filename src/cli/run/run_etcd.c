#include "cli/run/run_etcd.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "cli/cli.h"
#include "net/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AGAIN_MS = 500 };

/* Put the scheme before each server that has none. */
static tt_status name_servers(tt__run_etcd *etcd, const char *endpoint, const char *scheme) {
    size_t used = 0;
    for (const char *at = endpoint; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        int n = (int)strcspn(at, ",");
        bool has_scheme = !strncmp(at, "http://", 7) || !strncmp(at, "https://", 8);
        used += (size_t)snprintf(etcd->endpoints + used, sizeof etcd->endpoints - used, "%s%s%.*s", used ? "," : "",
                                 has_scheme ? "" : scheme, n, at);
        if (used >= sizeof etcd->endpoints)
            return tt__fail(TT_ERR_INVALID, "--rdzv-endpoint: expected at most %zu bytes, got more",
                            sizeof etcd->endpoints - 1);
    }
    return TT_OK;
}

tt_status tt__run_etcd_read(tt__run_etcd *etcd, const char *endpoint, const tt__rdzv_conf *conf) {
    const char *protocol = conf->protocol ? conf->protocol : "http";
    char scheme[24];
    if (!endpoint)
        return tt__fail(TT_ERR_INVALID, "--rdzv-backend=etcd: expected --rdzv-endpoint=HOST:2379, where etcd is, got "
                                        "none");
    if (strcmp(protocol, "http") != 0 && strcmp(protocol, "https") != 0)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf: protocol: expected http or https, got \"%.40s\"", protocol);
    snprintf(scheme, sizeof scheme, "%s://", protocol);
    etcd->place = (tt__etcd_place){etcd->endpoints, conf->ca_file, conf->cert_file, conf->key_file};
    return name_servers(etcd, endpoint, scheme);
}

/* Split the host off a server; returns what follows it. */
static const char *next_host(const char *at, char host[NI_MAXHOST]) {
    size_t n = strcspn(at, ",");
    const char *scheme = memmem(at, n, "://", 3), *start = scheme ? scheme + 3 : at, *end = at + n;
    const char *bracket = *start == '[' ? memchr(start, ']', (size_t)(end - start)) : NULL;
    const char *colon = bracket ? NULL : memrchr(start, ':', (size_t)(end - start));
    const char *stop = bracket ? bracket + 1 : colon ? colon : end;
    while (stop > start && stop[-1] == '/')
        stop--;
    snprintf(host, NI_MAXHOST, "%.*s", (int)(stop - start), start);
    return *end ? end + 1 : end;
}

/* Find the source address of packets to `to`, of which none is sent. */
static tt_status find_source(const struct addrinfo *to, char own[NI_MAXHOST]) {
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    int fd = tt__fd(socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    bool found = fd >= 0 && !connect(fd, to->ai_addr, to->ai_addrlen) &&
                 !getsockname(fd, (struct sockaddr *)&from, &size) &&
                 !getnameinfo((struct sockaddr *)&from, size, own, NI_MAXHOST, NULL, 0, NI_NUMERICHOST);
    int errnum = errno;
    if (fd >= 0)
        close(fd);
    return found ? TT_OK
                 : tt__fail_errno(TT_ERR_INVALID, errnum,
                                  "--rdzv-endpoint: no way there that would tell this node's address (--local-addr "
                                  "says it)");
}

/* Try each server once. *error: why none could be resolved. */
static tt_status try_servers(const char *endpoints, char own[NI_MAXHOST], int *error) {
    char host[NI_MAXHOST];
    tt_status status = TT_ERR_INVALID;
    *error = EAI_NONAME;
    for (const char *at = endpoints; *at && status;) {
        struct addrinfo *list = NULL;
        at = next_host(at, host);
        int failed = tt__net_resolve(host, "2379", 0, &list);
        *error = *error ? failed : 0;
        for (const struct addrinfo *a = list; !failed && a && status; a = a->ai_next)
            status = find_source(a, own);
        if (list)
            freeaddrinfo(list);
    }
    return status;
}

tt_status tt__run_etcd_own_address(const tt__run_etcd *etcd, int64_t wait_ms, char own[NI_MAXHOST]) {
    int64_t deadline = tt__deadline_ms(wait_ms);
    int error;
    for (bool told = false;; told = true) {
        tt_status status = try_servers(etcd->endpoints, own, &error);
        if (!status || !error)
            return status;
        if ((error != EAI_NONAME && error != EAI_AGAIN) || !tt__left_ms(deadline))
            return tt__fail(TT_ERR_INVALID, "--rdzv-endpoint: can't resolve \"%.200s\": %s", etcd->endpoints,
                            gai_strerror(error));
        if (!told)
            tt__cli_note("run", "--rdzv-endpoint: waiting, at most %lld s, until \"%.200s\" can be resolved: %s",
                         (long long)(wait_ms / 1000), etcd->endpoints, gai_strerror(error));
        tt__sleep_ms(AGAIN_MS);
    }
}
