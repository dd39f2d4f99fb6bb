#include "cli/run/run_meeting.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "net/net.h"

#include <tutti/store.h>

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* C10D_PORT: torchrun's default. */
enum { C10D_PORT = 29400 };

/* How long to wait for other nodes, as torchrun's static rendezvous; how long one may be silent. */
enum { JOIN_MS = 600 * 1000, HEARTBEAT_MS = 5000 };

/* How long nobody may have come when fewer nodes begin than might; how long to look for a job that was lost. */
enum { LAST_CALL_MS = 1000, REJOIN_MS = 60 * 1000 };

/* Resolve a name of another host, which the name service may learn of only when that host is there (a pod's, say). */
static int resolve_patiently(const char *flag, const char *host, int64_t wait_ms, struct addrinfo **list) {
    enum { AGAIN_MS = 500 };
    int64_t deadline = tt__deadline_ms(wait_ms);
    int error;
    for (bool told = false; (error = tt__net_resolve(host, NULL, 0, list)) == EAI_NONAME || error == EAI_AGAIN;) {
        if (!tt__left_ms(deadline))
            break;
        if (!told)
            tt__cli_note("run", "%s: waiting, at most %lld s, until \"%s\" can be resolved: %s", flag,
                         (long long)(wait_ms / 1000), host, gai_strerror(error));
        told = true;
        poll(NULL, 0, AGAIN_MS);
    }
    return error;
}

/* Resolve `host` to the numeric address in bind (NI_MAXHOST bytes), IPv4 rather than IPv6. A job on one host needs
 * loopback. On several, a name that is loopback here, as a host's own name often is in /etc/hosts, is another address
 * elsewhere: then all are served. */
static tt_status resolve_address(const char *flag, const char *host, bool one_host, int64_t wait_ms, char *bind) {
    struct addrinfo *list = NULL;
    const struct addrinfo *chosen = NULL;
    bool loopback = true;
    int error = resolve_patiently(flag, host, wait_ms, &list);
    for (const struct addrinfo *a = list; !error && a; a = a->ai_next) {
        loopback = loopback && tt__net_is_loopback(a->ai_addr);
        if (!chosen || (chosen->ai_family == AF_INET6 && a->ai_family == AF_INET))
            chosen = a;
    }
    if (!error)
        error = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, bind, NI_MAXHOST, NULL, 0, NI_NUMERICHOST);
    if (!error && !one_host && loopback && strcmp(host, bind) != 0 && strcmp(host, "localhost") != 0)
        snprintf(bind, NI_MAXHOST, "%s", chosen->ai_family == AF_INET6 ? "::" : "0.0.0.0");
    if (list)
        freeaddrinfo(list);
    if (error)
        return tt__fail(TT_ERR_INVALID, "%s: can't resolve \"%s\": %s", flag, host, gai_strerror(error));
    if (one_host && !loopback)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: expected a loopback address such as 127.0.0.1 for a job on one host, got \"%s\" "
                        "(--nnodes says how many take part)",
                        flag, host);
    return TT_OK;
}

/* torchrun's is_host: does this node serve the store? */
static tt_status read_is_host(tt__job *job, const char *value) {
    static const char *const yes[] = {"1", "true", "True", "t", "yes", "y"}, *const no[] = {"0", "false", "False",
                                                                                            "f", "no",    "n"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!strcmp(value, yes[i]) || !strcmp(value, no[i])) {
            job->serves = !strcmp(value, yes[i]);
            return TT_OK;
        }
    return tt__fail(TT_ERR_INVALID, "--rdzv-conf: is_host: expected true or false, got \"%s\"", value);
}

/* `tutti run` could once be a node of a job of torchrun's. Whoever still asks for that must not start a job of its own
 * unawares. Any other value is ignored, as torchrun does. */
static tt_status check_protocol(const char *value) {
    if (strcmp(value, "torch") != 0 && strcmp(value, "torch1") != 0)
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "--rdzv-conf: protocol=%s: one job mixes no launchers: start all nodes with tutti run, or all with "
                    "torchrun, which runs Tutti's and PyTorch's programs, too",
                    value);
}

/* --rdzv-conf NAME=VALUE,...: other names are for back ends of torchrun's that are not here; etcd reads its own. */
static tt_status read_rdzv_conf(tt__job *job, const char *conf) {
    const struct {
        const char *name;
        int64_t *ms;
        double least_s;
    } periods[] = {{"timeout", &job->join_ms, 1},
                   {"join_timeout", &job->join_ms, 1},
                   {"last_call_timeout", &job->last_call_ms, 0},
                   {"heartbeat", &job->heartbeat_ms, 0.5},
                   {"rejoin", &job->rejoin_ms, 0}};
    job->join_ms = JOIN_MS;
    job->last_call_ms = LAST_CALL_MS;
    job->heartbeat_ms = HEARTBEAT_MS;
    job->rejoin_ms = REJOIN_MS;
    job->serves = -1;
    for (const char *part = conf; part && *part; part += strcspn(part, ",") + (part[strcspn(part, ",")] == ',')) {
        size_t n = strcspn(part, ","), equals = strcspn(part, "=");
        char name[24], value[24], label[48];
        double seconds = 0;
        if (!equals || equals >= n)
            return tt__fail(TT_ERR_INVALID, "--rdzv-conf: expected NAME=VALUE,..., got \"%.200s\"", conf);
        snprintf(name, sizeof name, "%.*s", (int)equals, part);
        snprintf(value, sizeof value, "%.*s", (int)(n - equals - 1), part + equals + 1);
        snprintf(label, sizeof label, "--rdzv-conf: %s", name);
        if (!strcmp(name, "is_host"))
            TT__TRY(read_is_host(job, value));
        if (!strcmp(name, "protocol") && strcmp(job->rdzv_backend, "etcd") != 0)
            TT__TRY(check_protocol(value));
        for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
            if (strcmp(name, periods[i].name) != 0)
                continue;
            TT__TRY(tt__parse_f64(label, value, &seconds));
            if (!(seconds >= periods[i].least_s && seconds <= 1e6))
                return tt__fail(TT_ERR_INVALID, "%s: expected seconds from %g to 1000000, got \"%s\"", label,
                                periods[i].least_s, value);
            *periods[i].ms = (int64_t)(seconds * 1000);
        }
    }
    return TT_OK;
}

/* Was any flag given that says where the ranks meet? */
static bool says_where(const tt__run_flags *flags) {
    const char *const given[] = {flags->master_addr, flags->master_port, flags->rdzv_backend, flags->rdzv_endpoint};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i] && *given[i])
            return true;
    return false;
}

/* Choose the rendezvous: with c10d nodes come without a number, and may come and go. */
static tt_status choose_backend(tt__job *job, const tt__run_flags *flags) {
    bool given = flags->rdzv_backend && *flags->rdzv_backend, range = job->min_nodes < job->max_nodes;
    const char *backend = given ? flags->rdzv_backend : range ? "c10d" : "static";
    bool dynamic = !strcmp(backend, "c10d") || !strcmp(backend, "etcd");
    if (!strcmp(backend, "etcd-v2"))
        return tt__fail(TT_ERR_UNSUPPORTED, "--rdzv-backend=etcd-v2: etcd's v2 API is gone since etcd 3.6: expected "
                                            "etcd, which speaks v3");
    if (!dynamic && strcmp(backend, "static") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED, "--rdzv-backend: expected static, c10d or etcd, got \"%.100s\"", backend);
    if (!dynamic && range)
        return tt__fail(TT_ERR_INVALID,
                        "--nnodes=%d:%d: nodes that come and go have no fixed numbers: expected --rdzv-backend=c10d, "
                        "got static",
                        job->min_nodes, job->max_nodes);
    if (flags->standalone && job->max_nodes > 1)
        return tt__fail(TT_ERR_INVALID, "--standalone is for a job on one node, got --nnodes=%s", flags->nnodes);
    if (strcmp(backend, "etcd") != 0 && !flags->standalone && flags->rdzv_endpoint && strchr(flags->rdzv_endpoint, ','))
        return tt__fail(TT_ERR_INVALID,
                        "--rdzv-endpoint: only etcd has several endpoints: expected one HOST:PORT or "
                        "--rdzv-backend=etcd, got \"%.200s\" with %s",
                        flags->rdzv_endpoint, backend);
    job->rdzv_backend = backend;
    if (dynamic && job->max_nodes > 1) {
        job->number = -1;
        job->node = 0;
    }
    return TT_OK;
}

/* etcd says which node serves the store: any of them may, at any free port of the address by which the others reach
 * it. */
static tt_status meet_in_etcd(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags) {
    char bare[TT__NET_HOST_SIZE];
    TT__TRY(read_rdzv_conf(job, flags->rdzv_conf));
    TT__TRY(tt__run_etcd_read(&place->etcd, flags->rdzv_endpoint, flags->rdzv_conf));
    if (flags->local_addr && *flags->local_addr) {
        snprintf(place->host, sizeof place->host, "%s", tt__net_bare_host(flags->local_addr, bare));
        TT__TRY(resolve_address("--local-addr", place->host, false, job->join_ms, place->bind));
    } else {
        TT__TRY(tt__run_etcd_own_address(&place->etcd, job->join_ms, place->host));
        memcpy(place->bind, place->host, sizeof place->bind);
    }
    job->etcd = &place->etcd.place;
    job->master_addr = job->own_addr = place->host;
    job->bind_addr = place->bind;
    job->master_port = 0;
    return TT_OK;
}

/* On one node with c10d torchrun chooses any free port itself; the endpoint is where its
 * agents would meet, and must be on this host. Elsewhere the endpoint is MASTER_ADDR and MASTER_PORT. A job of one node
 * for which nothing was said takes any free port, so that several can run side by side. */
tt_status tt__run_find_meeting_place(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags) {
    const char *port = NULL;
    TT__TRY(choose_backend(job, flags));
    bool etcd = !strcmp(job->rdzv_backend, "etcd");
    if (etcd && job->max_nodes > 1)
        return meet_in_etcd(job, place, flags);
    bool c10d = etcd || !strcmp(job->rdzv_backend, "c10d"),
         any_port = job->max_nodes == 1 && (flags->standalone || c10d || !says_where(flags));
    char bare[TT__NET_HOST_SIZE];
    int64_t number = any_port ? 0 : c10d ? C10D_PORT : TT_STORE_DEFAULT_PORT;
    bool local = flags->local_addr && *flags->local_addr && any_port;
    const char *address = local ? flags->local_addr : flags->master_addr;
    snprintf(place->host, sizeof place->host, "%s",
             address && *address ? tt__net_bare_host(address, bare) : "127.0.0.1");
    TT__TRY(read_rdzv_conf(job, flags->rdzv_conf));
    TT__TRY(resolve_address(local ? "--local-addr" : "--master-addr", place->host, job->nodes == 1 && !local,
                            job->nodes > 1 ? job->join_ms : 0, place->bind));
    if (flags->rdzv_endpoint && *flags->rdzv_endpoint && !flags->standalone && !etcd) {
        char host[NI_MAXHOST], bind[NI_MAXHOST];
        if (!tt__net_split_endpoint(flags->rdzv_endpoint, host, sizeof host, &port))
            return tt__fail(TT_ERR_INVALID, "--rdzv-endpoint: expected HOST:PORT, got \"%.200s\"",
                            flags->rdzv_endpoint);
        TT__TRY(resolve_address("--rdzv-endpoint", host, job->nodes == 1, job->nodes > 1 ? job->join_ms : 0, bind));
        if (port)
            TT__TRY(tt__parse_i64("--rdzv-endpoint: port", port, 0, 65535, &number));
        if (!any_port) {
            memcpy(place->host, host, sizeof host);
            memcpy(place->bind, bind, sizeof bind);
        }
    }
    if (flags->master_port && *flags->master_port)
        TT__TRY(tt__parse_i64("--master-port", flags->master_port, 0, 65535, &number));
    if (job->nodes > 1 && !number)
        return tt__fail(TT_ERR_UNSUPPORTED, "%d nodes: expected a %s that they all know, got 0", job->nodes,
                        c10d ? "port in --rdzv-endpoint" : "--master-port");
    if (any_port)
        job->rdzv_backend = "c10d";
    job->master_addr = place->host;
    job->bind_addr = place->bind;
    job->master_port = (int)number;
    return TT_OK;
}

bool tt__run_meets_on_loopback(const tt__job *job) {
    struct addrinfo *list = NULL;
    if (job->max_nodes < 2 || job->etcd || tt__net_resolve(job->bind_addr, NULL, AI_NUMERICHOST, &list))
        return false;
    bool loopback = tt__net_is_loopback(list->ai_addr);
    freeaddrinfo(list);
    return loopback;
}
