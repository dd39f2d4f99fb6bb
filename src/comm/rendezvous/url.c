/* Rank and world size for addresses that can carry them: "...?rank=R&world_size=N". */
#include "base/error.h"
#include "base/text/parse.h"
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

static tt_status url_lacks(const char *url, const char *form, const char *what) {
    return tt__fail(TT_ERR_INVALID,
                    "%.200s: expected %s, the %s is missing (give .rank and .world_size, or ?rank=R&world_size=N)", url,
                    form, what);
}

tt_status tt__meeting_ranks(tt__meeting *meeting, const char *url, const char *form, int rank, int world) {
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
