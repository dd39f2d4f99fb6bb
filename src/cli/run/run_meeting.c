#include "cli/run/run_meeting.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "net/net.h"

#include <tutti/store.h>

#include <stdio.h>
#include <string.h>

/* C10D_PORT: torchrun's default. */
enum { C10D_PORT = 29400 };

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
        tt__sleep_ms(AGAIN_MS);
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

/* `tutti run` could once be a node of a job of torchrun's. Whoever still asks for that must not start a job of its own
 * unawares. Any other value is ignored, as torchrun does. */
static tt_status check_protocol(const char *value) {
    if (!value || (strcmp(value, "torch") != 0 && strcmp(value, "torch1") != 0))
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "--rdzv-conf: protocol=%s: one job mixes no launchers: start all nodes with tutti run, or all with "
                    "torchrun, which runs Tutti's and PyTorch's programs, too",
                    value);
}

static tt_status read_rdzv_conf(tt__job *job, tt__rdzv_conf *conf, const tt__run_flags *flags) {
    TT__TRY(tt__rdzv_conf_read(conf, flags->rdzv_conf));
    if (strcmp(job->rdzv_backend, "etcd") != 0)
        TT__TRY(check_protocol(conf->protocol));
    job->join_ms = flags->given.join_timeout ? flags->join_timeout : conf->join_ms;
    job->last_call_ms = conf->last_call_ms;
    job->heartbeat_ms = conf->heartbeat_ms;
    job->rejoin_ms = conf->rejoin_ms;
    job->serves = conf->is_host;
    return TT_OK;
}

/* Was any flag given that says where the ranks meet? */
static bool says_where(const tt__run_flags *flags) {
    return flags->given.master_addr || flags->given.master_port || flags->given.rdzv_backend ||
           flags->given.rdzv_endpoint;
}

/* Choose the rendezvous: with c10d nodes come without a number, and may come and go. */
static tt_status choose_backend(tt__job *job, const tt__run_flags *flags) {
    bool range = job->min_nodes < job->max_nodes;
    const char *backend = flags->rdzv_backend ? flags->rdzv_backend : range ? "c10d" : "static";
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
    TT__TRY(read_rdzv_conf(job, &place->conf, flags));
    TT__TRY(tt__run_etcd_read(&place->etcd, flags->rdzv_endpoint, &place->conf));
    if (flags->local_addr) {
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
    bool local = flags->local_addr && any_port;
    snprintf(place->host, sizeof place->host, "%s",
             tt__net_bare_host(local ? flags->local_addr : flags->master_addr, bare));
    TT__TRY(read_rdzv_conf(job, &place->conf, flags));
    TT__TRY(resolve_address(local ? "--local-addr" : "--master-addr", place->host, job->nodes == 1 && !local,
                            job->nodes > 1 ? job->join_ms : 0, place->bind));
    if (flags->rdzv_endpoint && !flags->standalone && !etcd) {
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
    if (flags->given.master_port)
        number = flags->master_port;
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
