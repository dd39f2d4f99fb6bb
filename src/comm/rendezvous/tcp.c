/* tcp://host:port: everything in one address, "?rank=R&world_size=N" included or given apart. */
#include "base/error.h"
#include "base/text/parse.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/net.h"

#include <stdio.h>
#include <string.h>

#define FORM "tcp://host:port[?rank=R&world_size=N]"

static tt_status bad_url(const char *url, const char *what) {
    return tt__fail(TT_ERR_INVALID, "%.200s: expected " FORM ", %s", url, what);
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
    TT__TRY(tt__meeting_ranks(meeting, url, FORM, rank, world));
    if (!meeting->port && meeting->world > 1)
        return bad_url(url, "and port 0 works for a world of one only");
    meeting->serves = meeting->rank == 0 && !tt__agent_serves_store(meeting->host, meeting->port);
    return TT_OK;
}
