#include "store/replica_place.h"

#include "base/error.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

enum { HOST_MAX = 255 };

/* Find where a host ends, and where its port begins, if it has one. A host in brackets, or one with several colons, is
 * an IPv6 address. False: it is no host. */
static bool find_host(const char *text, const char **host, size_t *size, const char **port) {
    const char *last = strrchr(text, ':');
    *host = text;
    *size = strlen(text);
    *port = NULL;
    if (*text == '[') {
        const char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        *host = text + 1;
        *size = (size_t)(end - *host);
        *port = end[1] ? end + 2 : NULL;
    } else if (last && strchr(text, ':') == last) {
        *size = (size_t)(last - text);
        *port = last + 1;
    }
    for (size_t i = 0; i < *size; i++)
        if ((unsigned char)(*host)[i] <= ' ' || strchr("[]/@\x7f", (*host)[i]))
            return false;
    return *size && *size <= HOST_MAX;
}

static tt_status split_place(const char *what, const char *text, int default_port, char host[NI_MAXHOST], int *port) {
    const char *from, *number;
    size_t size;
    int64_t value = default_port;
    if (!find_host(text, &from, &size, &number) || (!number && !default_port))
        return tt__fail(TT_ERR_INVALID, "%s: expected %s, separated by commas without blanks, got \"%.200s\"", what,
                        default_port ? "HOST or HOST:PORT" : "HOST:PORT", text);
    memcpy(host, from, size);
    host[size] = '\0';
    if (number)
        TT__TRY(tt__parse_i64(what, number, 1, 65535, &value));
    *port = (int)value;
    return TT_OK;
}

tt_status tt__replica_place_read(tt__replica_place *place, const char *what, const char *endpoints, int port) {
    char one[HOST_MAX + 16];
    const char *at = endpoints;
    *place = (tt__replica_place){0};
    for (bool more = true; more && place->n < TT__REPLICAS_MAX;) {
        size_t size = strcspn(at, ",");
        if (size >= sizeof one)
            break;
        snprintf(one, sizeof one, "%.*s", (int)size, at);
        TT__TRY(split_place(what, one, port, place->at[place->n].host, &place->at[place->n].port));
        for (int i = 0; i < place->n; i++)
            if (place->at[i].port == place->at[place->n].port && !strcmp(place->at[i].host, place->at[place->n].host))
                return tt__fail(TT_ERR_INVALID, "%s: expected each replica once, got \"%.200s\" twice", what, one);
        place->n++;
        more = at[size] == ',';
        at += size + more;
    }
    bool all = at > endpoints && !*at && at[-1] != ',';
    if (!all || (place->n != 3 && place->n != 5))
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected three or five HOST:PORT, separated by commas, of which one or two may be lost; "
                        "got \"%.300s\"",
                        what, endpoints);
    return TT_OK;
}

void tt__replica_place_text(const tt__replica_place *place, char text[TT__REPLICA_LIST_SIZE]) {
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < place->n; i++) {
        char where[TT__NET_ENDPOINT_SIZE];
        tt__net_endpoint_text(place->at[i].host, place->at[i].port, where);
        used += (size_t)snprintf(text + used, TT__REPLICA_LIST_SIZE - used, "%s%s", used ? "," : "", where);
    }
}

bool tt__replica_place_agrees(const tt__replica_place *place, tt__span list) {
    char text[TT__REPLICA_LIST_SIZE];
    tt__replica_place theirs;
    if (list.size >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)list.size, (const char *)list.data);
    if (tt__replica_place_read(&theirs, "a list", text, 0) || theirs.n != place->n)
        return false;
    for (int i = 0; i < place->n; i++)
        for (int j = 0; j < place->n; j++)
            if (i != j && theirs.at[i].port == place->at[j].port && !strcmp(theirs.at[i].host, place->at[j].host))
                return false;
    return true;
}
