/* env://: rank, world size and address from the variables that launchers set. */
#include "base/error.h"
#include "base/parse.h"
#include "comm/rendezvous/rendezvous.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEEDS "env:// needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (`tutti run` sets them)"

bool tt__agent_serves_store(void) {
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return agent && !strcmp(agent, "True");
}

tt_status tt__meeting_check(const char *where, int64_t rank, int64_t world) {
    if (rank >= 0 && rank < world)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "%s: the rank must be from 0 to %" PRId64 " in a world of %" PRId64 ", but it is %" PRId64, where,
                    world - 1, world, rank);
}

static tt_status from_env(const char *name, int64_t min, int64_t max, int64_t *value) {
    if (tt__parse_i64(name, getenv(name), min, max, value))
        return tt__fail_prefix(NEEDS);
    return TT_OK;
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

static tt_status address_from_env(tt__meeting *meeting) {
    const char *host = getenv("MASTER_ADDR");
    int64_t port = 0;
    if (!host || !*host || strlen(host) >= sizeof meeting->host)
        return tt__fail(TT_ERR_INVALID, NEEDS ": MASTER_ADDR: expected a host name or address, but it is %s",
                        !host    ? "not set"
                        : !*host ? "empty"
                                 : "too long");
    if (!may_be_host(host))
        return tt__fail(
            TT_ERR_INVALID,
            NEEDS ": MASTER_ADDR: expected a host name or address (its port is MASTER_PORT), got \"%.100s\"", host);
    TT__TRY(from_env("MASTER_PORT", 0, 65535, &port));
    if (!port && meeting->world > 1)
        return tt__fail(TT_ERR_INVALID, "env://: MASTER_PORT: port 0 works for a world of one only");
    snprintf(meeting->host, sizeof meeting->host, "%s", host);
    meeting->port = (int)port;
    return TT_OK;
}

tt_status tt__meeting_from_env(tt__meeting *meeting, int rank, int world, bool has_store) {
    int64_t r = rank, n = world;
    if (!world) {
        TT__TRY(from_env("RANK", 0, INT32_MAX, &r));
        TT__TRY(from_env("WORLD_SIZE", 1, INT32_MAX, &n));
    }
    TT__TRY(tt__meeting_check(world ? "env://" : "env://: RANK and WORLD_SIZE", r, n));
    *meeting = (tt__meeting){.rank = (int)r, .world = (int)n, .serves = r == 0 && !tt__agent_serves_store()};
    return has_store ? TT_OK : address_from_env(meeting);
}
