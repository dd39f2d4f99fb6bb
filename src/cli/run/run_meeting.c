/* Where a job's ranks and nodes meet: at an address of a host, or in etcd. */
#include "cli/run/run.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "net/net.h"

#include <tutti/store.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { C10D_PORT = 29400 /* torchrun's default */, AGAIN_MS = 500 };

/* ---- --rdzv-conf NAME=VALUE,...: settings of the rendezvous, under torchrun's names */

static tt_status read_conf_seconds(int64_t *ms, const char *name, const char *value, double least) {
    char label[64];
    double seconds;
    snprintf(label, sizeof label, "--rdzv-conf: %s", name);
    TT__TRY(tt__parse_f64(label, value, &seconds));
    if (!(seconds >= least && seconds <= 1e6))
        return tt__fail(TT_ERR_INVALID, "%s: expected seconds from %g to 1000000, got \"%.40s\"", label, least, value);
    *ms = (int64_t)(seconds * 1000);
    return TT_OK;
}

static tt_status read_is_host(int *serves, const char *value) {
    bool yes = tt__cli_choice("1 true True t yes y", value) >= 0,
         no = tt__cli_choice("0 false False f no n", value) >= 0;
    if (!yes && !no)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf: is_host: expected true or false, got \"%.40s\"", value);
    *serves = yes;
    return TT_OK;
}

static tt_status read_conf_setting(tt__job *job, tt__run_meeting *place, const char *name, const char *value) {
    const struct {
        const char *name;
        int64_t *ms;
        double least;
    } periods[] = {{"timeout", &job->join_ms, 1},
                   {"join_timeout", &job->join_ms, 1},
                   {"last_call_timeout", &job->last_call_ms, 0},
                   {"heartbeat", &job->heartbeat_ms, 0.5},
                   {"rejoin", &job->rejoin_ms, 0}};
    const struct {
        const char *name, **value;
    } texts[] = {{"protocol", &place->protocol},
                 {"cacert", &place->etcd.ca_file},
                 {"cert", &place->etcd.cert_file},
                 {"key", &place->etcd.key_file}};
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++)
        if (!strcmp(name, periods[i].name))
            return read_conf_seconds(periods[i].ms, name, value, periods[i].least);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(name, texts[i].name))
            *texts[i].value = value;
    return strcmp(name, "is_host") != 0 ? TT_OK : read_is_host(&job->serves, value);
}

/* PyTorch's own tests put quotes around the whole value, which no shell has taken off. */
static size_t skip_quotes(const char **text) {
    size_t n = strlen(*text);
    if (n < 2 || ((*text)[0] != '\'' && (*text)[0] != '"') || (*text)[n - 1] != (*text)[0])
        return n;
    ++*text;
    return n - 2;
}

/* Read the value of the flag. Unknown names are skipped: they are for back ends of torchrun's that are not here. If a
 * name comes twice, the last one counts. */
static tt_status read_conf_settings(tt__job *job, tt__run_meeting *place, const char *text) {
    size_t n = skip_quotes(&text);
    if (n >= sizeof place->conf)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf: expected at most %zu bytes, got %zu", sizeof place->conf - 1, n);
    memcpy(place->conf, text, n);
    for (char *rest = place->conf, *part; (part = strsep(&rest, ","));) {
        char *equals = strchr(part, '=');
        if (!*part)
            continue;
        if (!equals || equals == part)
            return tt__fail(TT_ERR_INVALID, "--rdzv-conf: expected NAME=VALUE,..., got \"%.*s\"",
                            n < 200 ? (int)n : 200, text);
        *equals = '\0';
        TT__TRY(read_conf_setting(job, place, part, equals + 1));
    }
    return TT_OK;
}

/* `tutti run` could once be a node of a job of torchrun's. A user who still asks for that must not start another job
 * unawares. Other values are ignored, as by torchrun. */
static tt_status check_protocol(const char *value) {
    if (!value || (strcmp(value, "torch") != 0 && strcmp(value, "torch1") != 0))
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "--rdzv-conf: protocol=%s: one job mixes no launchers: start all nodes with tutti run, or all with "
                    "torchrun, which runs Tutti's and PyTorch's programs, too",
                    value);
}

static tt_status read_rdzv_conf(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags) {
    job->join_ms = 600 * 1000; /* as torchrun's static rendezvous */
    job->last_call_ms = 1000;
    job->heartbeat_ms = 5000;
    job->rejoin_ms = 60 * 1000;
    job->serves = -1;
    if (flags->rdzv_conf)
        TT__TRY(read_conf_settings(job, place, flags->rdzv_conf));
    if (flags->given.join_timeout)
        job->join_ms = flags->join_timeout;
    return strcmp(job->rdzv_backend, "etcd") != 0 ? check_protocol(place->protocol) : TT_OK;
}

/* ---- --rdzv-backend=etcd: where etcd is, and by which address this node is reached from there */

/* Put the scheme before each server that has none. */
static tt_status name_servers(tt__run_meeting *place, const char *endpoint, const char *scheme) {
    size_t used = 0;
    for (const char *at = endpoint; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        int n = (int)strcspn(at, ",");
        bool has_scheme = !strncmp(at, "http://", 7) || !strncmp(at, "https://", 8);
        used += (size_t)snprintf(place->endpoints + used, sizeof place->endpoints - used, "%s%s%.*s", used ? "," : "",
                                 has_scheme ? "" : scheme, n, at);
        if (used >= sizeof place->endpoints)
            return tt__fail(TT_ERR_INVALID, "--rdzv-endpoint: expected at most %zu bytes, got more",
                            sizeof place->endpoints - 1);
    }
    return TT_OK;
}

/* Read --rdzv-endpoint: one server, or several separated by commas. */
static tt_status read_etcd_endpoint(tt__run_meeting *place, const char *endpoint) {
    const char *protocol = place->protocol ? place->protocol : "http";
    char scheme[24];
    if (!endpoint)
        return tt__fail(TT_ERR_INVALID, "--rdzv-backend=etcd: expected --rdzv-endpoint=HOST:2379, where etcd is, got "
                                        "none");
    if (strcmp(protocol, "http") != 0 && strcmp(protocol, "https") != 0)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf: protocol: expected http or https, got \"%.40s\"", protocol);
    snprintf(scheme, sizeof scheme, "%s://", protocol);
    place->etcd.endpoints = place->endpoints;
    return name_servers(place, endpoint, scheme);
}

/* Copy the host of the first server of a list. Returns the rest of the list. */
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

/* Find the address that packets to `to` would have as their source. None is sent. */
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

/* Find the numeric address from which this node speaks to etcd. Blocks while no name of a server can be resolved, at
 * most wait_ms. */
static tt_status find_own_address(const tt__run_meeting *place, int64_t wait_ms, char own[NI_MAXHOST]) {
    int64_t deadline = tt__deadline_ms(wait_ms);
    int error;
    for (bool told = false;; told = true) {
        tt_status status = try_servers(place->endpoints, own, &error);
        if (!status || !error)
            return status;
        if ((error != EAI_NONAME && error != EAI_AGAIN) || !tt__left_ms(deadline))
            return tt__fail(TT_ERR_INVALID, "--rdzv-endpoint: can't resolve \"%.200s\": %s", place->endpoints,
                            gai_strerror(error));
        if (!told)
            tt__cli_note("run", "--rdzv-endpoint: waiting, at most %lld s, until \"%.200s\" can be resolved: %s",
                         (long long)(wait_ms / 1000), place->endpoints, gai_strerror(error));
        tt__sleep_ms(AGAIN_MS);
    }
}

/* ---- addresses of hosts */

/* Resolve a name of another host. The name service may know it only once that host is up, as that of a pod. */
static int resolve_patiently(const char *flag, const char *host, int64_t wait_ms, struct addrinfo **list) {
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
 * elsewhere: then the store is served at all addresses. */
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

/* ---- the choice */

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

/* Any node may serve the store, at any free port of the address by which the others reach it: etcd says which one. */
static tt_status meet_in_etcd(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags) {
    char bare[TT__NET_HOST_SIZE];
    TT__TRY(read_rdzv_conf(job, place, flags));
    TT__TRY(read_etcd_endpoint(place, flags->rdzv_endpoint));
    if (flags->local_addr) {
        snprintf(place->host, sizeof place->host, "%s", tt__net_bare_host(flags->local_addr, bare));
        TT__TRY(resolve_address("--local-addr", place->host, false, job->join_ms, place->bind));
    } else {
        TT__TRY(find_own_address(place, job->join_ms, place->host));
        memcpy(place->bind, place->host, sizeof place->bind);
    }
    job->etcd = &place->etcd;
    job->master_addr = job->own_addr = place->host;
    job->bind_addr = place->bind;
    job->master_port = 0;
    return TT_OK;
}

/* With c10d on one node torchrun takes any free port; the endpoint is where its agents would meet, and must be on this
 * host. On several nodes the endpoint is MASTER_ADDR and MASTER_PORT. A job of one node without any of these flags
 * takes any free port: several such jobs can run side by side. */
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
    TT__TRY(read_rdzv_conf(job, place, flags));
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
