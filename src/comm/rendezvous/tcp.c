/* tcp://host:port: everything in one address, "?rank=R&world_size=N" included or given apart. */
#include "base/error.h"
#include "base/parse.h"
#include "comm/rendezvous/rendezvous.h"

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

static tt_status bad_url(const char *url, const char *what) {
    return tt__fail(TT_ERR_INVALID, "%.200s: expected tcp://host:port[?rank=R&world_size=N], %s", url, what);
}

/* "host:port" or "[address]:port". */
static tt_status parse_address(const char *url, const char *address, tt__meeting *meeting) {
    char port_text[16];
    size_t length = strcspn(address, "?");
    const char *colon = memrchr(address, ':', length);
    if (!colon || colon + 1 == address + length)
        return bad_url(url, "the port is missing");
    const char *host = address;
    size_t host_length = (size_t)(colon - address);
    if (host_length > 1 && host[0] == '[' && host[host_length - 1] == ']') {
        host++;
        host_length -= 2;
    }
    if (!host_length || host_length >= sizeof meeting->host)
        return bad_url(url, "the host is missing or too long");
    snprintf(port_text, sizeof port_text, "%.*s", (int)(address + length - colon - 1), colon + 1);
    int64_t port;
    if (tt__parse_i64("port", port_text, 0, 65535, &port))
        return tt__fail_prefix("%.200s", url);
    memcpy(meeting->host, host, host_length);
    meeting->host[host_length] = '\0';
    meeting->port = (int)port;
    return TT_OK;
}

tt_status tt__meeting_from_tcp(tt__meeting *meeting, const char *url, int rank, int world) {
    const char *address = url + strlen("tcp://"), *query = strchr(address, '?');
    char rank_text[24], world_text[24];
    int64_t r = rank, n = world;
    *meeting = (tt__meeting){0};
    TT__TRY(parse_address(url, address, meeting));
    if (!world) {
        if (!query_value(query ? query + 1 : NULL, "rank", rank_text, sizeof rank_text))
            return bad_url(url, "the rank is missing (give .rank and .world_size, or ?rank=R&world_size=N)");
        if (!query_value(query + 1, "world_size", world_text, sizeof world_text))
            return bad_url(url, "the world size is missing (give .rank and .world_size, or ?rank=R&world_size=N)");
        if (tt__parse_i64("rank", rank_text, 0, INT32_MAX, &r) ||
            tt__parse_i64("world_size", world_text, 1, INT32_MAX, &n))
            return tt__fail_prefix("%.200s", url);
    }
    TT__TRY(tt__meeting_check(url, r, n));
    if (!meeting->port && n > 1)
        return bad_url(url, "and port 0 works for a world of one only");
    meeting->rank = (int)r;
    meeting->world = (int)n;
    meeting->serves = r == 0 && !tt__agent_serves_store();
    return TT_OK;
}
