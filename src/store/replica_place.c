#include "store/replica_place.h"

#include "base/error.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

/* Split one endpoint. A host in brackets, or one with several colons, is an IPv6 address. */
static tt_status split_place(const char *what, const char *text, int default_port, char host[NI_MAXHOST], int *port) {
    char bare[TT__NET_HOST_SIZE];
    const char *bracket = strchr(text, ']'), *colon = strrchr(bracket ? bracket : text, ':');
    if (!bracket && colon && strchr(text, ':') != colon)
        colon = NULL;
    int size = colon ? (int)(colon - text) : (int)strlen(text);
    int64_t number = default_port;
    if (!size || size >= NI_MAXHOST || (!colon && !default_port))
        return tt__fail(TT_ERR_INVALID, "%s: expected HOST:PORT, got \"%.200s\"", what, text);
    snprintf(host, NI_MAXHOST, "%.*s", size, text);
    const char *inner = tt__net_bare_host(host, bare);
    if (inner != host)
        memmove(host, inner, strlen(inner) + 1);
    if (colon)
        TT__TRY(tt__parse_i64(what, colon + 1, 1, 65535, &number));
    *port = (int)number;
    return TT_OK;
}

tt_status tt__replica_place_read(tt__replica_place *place, const char *what, const char *endpoints, int port) {
    char one[NI_MAXHOST + 16];
    const char *at = endpoints;
    place->n = 0;
    do {
        size_t size = strcspn(at, ",");
        if (place->n == TT__REPLICAS_MAX || size >= sizeof one)
            break;
        snprintf(one, sizeof one, "%.*s", (int)size, at);
        TT__TRY(split_place(what, one, port, place->at[place->n].host, &place->at[place->n].port));
        for (int i = 0; i < place->n; i++)
            if (place->at[i].port == place->at[place->n].port && !strcmp(place->at[i].host, place->at[place->n].host))
                return tt__fail(TT_ERR_INVALID, "%s: expected each replica once, got \"%.200s\" twice", what, one);
        place->n++;
        at += size + (at[size] == ',');
    } while (*at);
    if (*at || (place->n != 3 && place->n != 5))
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected three or five HOST:PORT, separated by commas, of which one or two may be lost; "
                        "got \"%.300s\"",
                        what, endpoints);
    return TT_OK;
}
