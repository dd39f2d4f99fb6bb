/* etcd://host:port/job: ranks meet in an etcd that runs already, of which any node may fail. Ranks that the address
 * doesn't number are numbered by their launcher, as with env://. */
#include "base/error.h"
#include "comm/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>

#define FORM "etcd://host:port[,host:port...]/job[?rank=R&world_size=N], or etcds:// for TLS"

static tt_status bad_address(const char *url, const char *what) {
    return tt__fail(TT_ERR_INVALID, "%.200s: expected " FORM ", %s", url, what);
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

/* Where the address numbers no rank, and the program neither: as the environment says, which names no store. */
static tt_status number_by_environment(tt__meeting *meeting, const tt_init_process_group_args *args) {
    static char no_store;
    tt__meeting found;
    tt_init_process_group_args numbered = *args;
    numbered.init_method = NULL;
    numbered.store = (tt_store *)(void *)&no_store; /* none is looked for */
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
    return tt__meeting_ranks(meeting, url, FORM, args->rank, args->world_size);
}
