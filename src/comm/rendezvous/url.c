/* Where ranks meet, from an address: file://, etcd:// and tcp://, which may carry "?rank=R&world_size=N". env:// is
 * env.c's. */
#include "base/error.h"
#include "base/text/parse.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/net.h"

#include <stdio.h>
#include <string.h>

/* "rank=1" in a query string "rank=1&world_size=2": its value's text, or NULL. */
static const char *query_value(const char *query, const char *name, char *text, size_t size) {
    size_t length = strlen(name);
    for (const char *at = query; at && *at; at = strchr(at, '&') ? strchr(at, '&') + 1 : NULL) {
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        snprintf(text, size, "%.*s", (int)strcspn(at + length + 1, "&"), at + length + 1);
        return text;
    }
    return NULL;
}

static tt_status url_lacks(const char *url, const char *form, const char *what) {
    return tt__fail(TT_ERR_INVALID,
                    "%.200s: expected %s, the %s is missing (give .rank and .world_size, or ?rank=R&world_size=N)", url,
                    form, what);
}

/* Set rank and world as given (world > 0), else from the query of `url`, whose form the errors name. */
static tt_status meeting_ranks(tt__meeting *meeting, const char *url, const char *form, int rank, int world) {
    const char *query = strchr(url, '?');
    char rank_text[24], world_text[24];
    int64_t r = rank, n = world;
    if (!world) {
        if (!query_value(query ? query + 1 : NULL, "rank", rank_text, sizeof rank_text))
            return url_lacks(url, form, "rank");
        if (!query_value(query + 1, "world_size", world_text, sizeof world_text))
            return url_lacks(url, form, "world size");
        if (tt__parse_i64("rank", rank_text, 0, INT32_MAX, &r) ||
            tt__parse_i64("world_size", world_text, 1, INT32_MAX, &n))
            return tt__fail_prefix("%.200s", url);
    }
    TT__TRY(tt__meeting_check(url, r, n));
    meeting->rank = (int)r;
    meeting->world = (int)n;
    return TT_OK;
}

/* ---- file:///path: ranks that share a file system, but have no address, meet in a file. A rank that finds no other
 * there clears what an earlier job left; the last rank that has joined removes the file. */

#define FILE_FORM "file:///path[?rank=R&world_size=N]"

tt_status tt__meeting_from_file(tt__meeting *meeting, const char *url, int rank, int world) {
    const char *path = url + strlen("file://");
    size_t size = strcspn(path, "?");
    *meeting = (tt__meeting){0};
    if (*path != '/' || size < 2)
        return tt__fail(TT_ERR_INVALID, "%.200s: expected " FILE_FORM ", with the path from the root on", url);
    if (size >= sizeof meeting->path)
        return tt__fail(TT_ERR_INVALID, "%.200s: the path has %zu bytes, at most %zu are allowed", url, size,
                        sizeof meeting->path - 1);
    memcpy(meeting->path, path, size);
    return meeting_ranks(meeting, url, FILE_FORM, rank, world);
}

/* ---- etcd://host:port/job: ranks meet in an etcd that runs already, of which any node may fail. Ranks that the
 * address doesn't number are numbered by their launcher, as with env://. */

#define ETCD_FORM "etcd://host:port[,host:port...]/job[?rank=R&world_size=N], or etcds:// for TLS"

static tt_status bad_address(const char *url, const char *what) {
    return tt__fail(TT_ERR_INVALID, "%.200s: expected " ETCD_FORM ", %s", url, what);
}

/* Copy "a:1,b:2" to the meeting, with https:// before each where the scheme says so. */
static bool take_servers(tt__meeting *meeting, const char *at, size_t size, const char *scheme) {
    size_t used = 0;
    for (const char *end = at + size; at < end;) {
        size_t n = strcspn(at, ",/?");
        int put = snprintf(meeting->etcd + used, sizeof meeting->etcd - used, "%s%s%.*s", used ? "," : "", scheme,
                           (int)n, at);
        used += (size_t)put;
        if (used >= sizeof meeting->etcd)
            return false;
        at += n + 1;
    }
    return true;
}

/* Neither the address nor the program numbers this rank: take its number from the environment, which need not name a
 * store. */
static tt_status number_by_environment(tt__meeting *meeting, const tt_init_process_group_args *args) {
    static char no_store;
    tt__meeting found;
    tt_init_process_group_args numbered = *args;
    numbered.init_method = NULL;
    numbered.store = (tt_store *)(void *)&no_store; /* so that none is looked for */
    TT__TRY(tt__meeting_from_env(&tt__own_environment, &found, &numbered));
    meeting->rank = found.rank;
    meeting->world = found.world;
    return TT_OK;
}

tt_status tt__meeting_from_etcd(tt__meeting *meeting, const char *url, const tt_init_process_group_args *args) {
    bool encrypts = !strncmp(url, "etcds://", strlen("etcds://"));
    const char *servers = strstr(url, "://") + 3;
    size_t size = strcspn(servers, "/?"), job_size = 0;
    const char *job = servers + size;
    *meeting = (tt__meeting){0};
    if (*job == '/')
        job_size = strcspn(++job, "?");
    while (job_size && job[job_size - 1] == '/')
        job_size--;
    if (!size || *servers == ',')
        return bad_address(url, "the host is missing");
    if (!job_size)
        return bad_address(url, "the job's name is missing: its keys lie below it in etcd");
    if (job_size >= sizeof meeting->path || !take_servers(meeting, servers, size, encrypts ? "https://" : ""))
        return bad_address(url, "it is too long");
    memcpy(meeting->path, job, job_size);
    if (!args->world_size && !strchr(url, '?'))
        return number_by_environment(meeting, args);
    return meeting_ranks(meeting, url, ETCD_FORM, args->rank, args->world_size);
}

/* ---- tcp://host:port: everything in one address, "?rank=R&world_size=N" included or given apart */

#define TCP_FORM "tcp://host:port[?rank=R&world_size=N]"

static tt_status bad_url(const char *url, const char *what) {
    return tt__fail(TT_ERR_INVALID, "%.200s: expected " TCP_FORM ", %s", url, what);
}

/* "host:port" or "[address]:port". */
static tt_status tcp_parse_address(const char *url, const char *address, tt__meeting *meeting) {
    char endpoint[sizeof meeting->host + 16];
    const char *port_text = NULL;
    int64_t port;
    size_t length = strcspn(address, "?");
    snprintf(endpoint, sizeof endpoint, "%.*s", (int)(length < sizeof endpoint ? length : sizeof endpoint), address);
    if (!tt__net_split_endpoint(endpoint, meeting->host, sizeof meeting->host, &port_text))
        return bad_url(url, *address == '[' ? "and what '[' begins an address in brackets and a port end"
                                            : "the host is missing or too long, or an IPv6 address is not in brackets");
    if (!port_text || !*port_text)
        return bad_url(url, "the port is missing");
    if (tt__parse_i64("port", port_text, 0, 65535, &port))
        return tt__fail_prefix("%.200s", url);
    meeting->port = (int)port;
    return TT_OK;
}

tt_status tt__meeting_from_tcp(tt__meeting *meeting, const char *url, int rank, int world) {
    *meeting = (tt__meeting){0};
    TT__TRY(tcp_parse_address(url, url + strlen("tcp://"), meeting));
    TT__TRY(meeting_ranks(meeting, url, TCP_FORM, rank, world));
    if (!meeting->port && meeting->world > 1)
        return bad_url(url, "and port 0 works for a world of one only");
    meeting->serves = meeting->rank == 0 && !tt__agent_serves_store(meeting->host, meeting->port);
    return TT_OK;
}
