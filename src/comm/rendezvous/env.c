/* env://: rank, world size and address from the variables that launchers set. */
#include "base/error.h"
#include "base/text/parse.h"
#include "comm/rendezvous/rendezvous.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEEDS "env:// needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (`tutti run` sets them)"

bool tt__has_agent_store(void) {
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return agent && !strcmp(agent, "True");
}

bool tt__agent_serves_store(const char *host, int port) {
    const char *agents_host = getenv("MASTER_ADDR"), *agents_port = getenv("MASTER_PORT");
    return tt__has_agent_store() && agents_host && agents_port && !strcmp(agents_host, host) &&
           strtol(agents_port, NULL, 10) == port;
}

tt_status tt__meeting_check(const char *where, int64_t rank, int64_t world) {
    if (rank >= 0 && rank < world)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "%s: the rank must be from 0 to %" PRId64 " in a world of %" PRId64 ", but it is %" PRId64, where,
                    world - 1, world, rank);
}

/* Can the text be a host's name or address? Letters of other alphabets are left to the resolver. "host:port" is no
 * address, "::1" is. */
static bool may_be_host(const char *host) {
    const char *first = strchr(host, ':');
    if (first && strchr(host, ':') == strrchr(host, ':'))
        return false;
    for (const unsigned char *c = (const unsigned char *)host; *c; c++)
        if (*c < 0x80 && !isalnum(*c) && !strchr("-_.:%", *c))
            return false;
    return true;
}

/* MASTER_ADDR. */
static tt_status host_from_env(const tt__environment *environment, const tt__launched *launched, tt__meeting *meeting) {
    const char *host = environment->get(environment, "MASTER_ADDR");
    const char *what = !host ? "not set" : !*host ? "empty" : strlen(host) >= sizeof meeting->host ? "too long" : NULL;
    if (what && !launched->by_rank_and_size)
        return tt__fail(TT_ERR_INVALID,
                        "env://: %s does not say where rank 0 of %d can be met: set MASTER_ADDR to its host and "
                        "MASTER_PORT to a free port there, alike for all ranks (MASTER_ADDR is %s)",
                        launched->name ? launched->name : "nobody", meeting->world, what);
    if (what)
        return tt__fail(TT_ERR_INVALID, NEEDS ": MASTER_ADDR: expected a host name or address, but it is %s", what);
    if (!may_be_host(host))
        return tt__fail(
            TT_ERR_INVALID,
            NEEDS ": MASTER_ADDR: expected a host name or address (its port is MASTER_PORT), got \"%.100s\"", host);
    snprintf(meeting->host, sizeof meeting->host, "%s", host);
    return TT_OK;
}

/* Return the runtime folder of a login, which is this user's alone, or NULL. */
static const char *own_runtime_folder(const tt__environment *environment) {
    const char *folder = tt__environment_value(environment, "XDG_RUNTIME_DIR");
    struct stat info;
    bool own = folder && *folder == '/' && !stat(folder, &info) && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
               !(info.st_mode & 077);
    return own ? folder : NULL;
}

/* Meet in a file that only this user's processes of the job can use. Its name follows from the job's, so in a folder of
 * all users another user could take it first. */
static void meet_in_file(const tt__environment *environment, const tt__launched *launched, tt__meeting *meeting) {
    const char *folder = own_runtime_folder(environment);
    if (!folder)
        folder = tt__environment_value(environment, "TMPDIR");
    snprintf(meeting->path, sizeof meeting->path, "%.800s/tutti-%u-%s", folder ? folder : "/tmp", (unsigned)geteuid(),
             launched->job);
    meeting->whence = "all ranks are on this host";
}

/* Find the place to meet: the user's variables count before the launcher's. */
static tt_status find_place_to_meet(const tt__environment *environment, const tt__launched *launched,
                                    tt__meeting *meeting) {
    const char *host = environment->get(environment, "MASTER_ADDR");
    const char *port = environment->get(environment, "MASTER_PORT");
    bool one_host = launched->local_world == launched->world;
    int64_t number;
    if (!launched->by_rank_and_size && meeting->world == 1)
        return TT_OK;
    if (!launched->by_rank_and_size && !host && !port && !*launched->host && one_host && *launched->job) {
        meet_in_file(environment, launched, meeting);
        return TT_OK;
    }
    if (host || (!*launched->host && !(one_host && port)))
        TT__TRY(host_from_env(environment, launched, meeting));
    else
        snprintf(meeting->host, sizeof meeting->host, "%s", *launched->host ? launched->host : "127.0.0.1");
    if (!port && launched->port) {
        meeting->port = launched->port;
        meeting->whence = host ? "the port follows from the job's number" : launched->whence;
        return TT_OK;
    }
    if (tt__parse_i64("MASTER_PORT", port, 0, 65535, &number))
        return tt__fail_prefix(NEEDS);
    if (!number && meeting->world > 1)
        return tt__fail(TT_ERR_INVALID, "env://: MASTER_PORT: port 0 works for a world of one only");
    meeting->port = (int)number;
    return TT_OK;
}

/* Fail: RANK and WORLD_SIZE are not both set, and no launcher is recognised. */
static tt_status nothing_recognised(const tt__environment *environment, const tt__launched *launched) {
    const char *missing = environment->get(environment, "RANK") ? "WORLD_SIZE" : "RANK";
    if (*launched->saw)
        return tt__fail(TT_ERR_INVALID, "env://: no launcher is recognised: %s: %s", launched->saw, launched->to_do);
    return tt__fail(TT_ERR_INVALID, NEEDS ": %s is not set, nor do variables of srun or mpirun say it", missing);
}

tt_status tt__meeting_from_env(const tt__environment *environment, tt__meeting *meeting,
                               const tt_init_process_group_args *args) {
    bool any = environment->get(environment, "RANK") || environment->get(environment, "WORLD_SIZE");
    tt__launched launched = {0};
    *meeting = (tt__meeting){.world = 1};
    if (args->world_size) {
        TT__TRY(tt__meeting_check("env://", args->rank, args->world_size));
        launched = (tt__launched){.rank = args->rank, .world = args->world_size, .by_rank_and_size = true};
    } else {
        if (tt__launched_look(environment, &launched))
            return tt__fail_prefix("env://");
        if (!launched.name && args->or_alone && !any && !launched.wanted_several)
            return TT_OK;
        if (!launched.name)
            return nothing_recognised(environment, &launched);
        TT__TRY(tt__meeting_check("env://: RANK and WORLD_SIZE", launched.rank, launched.world));
    }
    meeting->rank = launched.rank;
    meeting->world = launched.world;
    if (launched.is_srun)
        snprintf(meeting->secret_of, sizeof meeting->secret_of, "%s", launched.job);
    if (args->store)
        return TT_OK;
    TT__TRY(find_place_to_meet(environment, &launched, meeting));
    bool serves = !tt__agent_serves_store(meeting->host, meeting->port);
    meeting->serves = serves && launched.rank == 0;
    meeting->needs_secret =
        serves && !launched.by_rank_and_size && launched.local_world && launched.local_world < launched.world;
    return TT_OK;
}
