#include "store/etcd_grant.h"

#include "base/error.h"
#include "store/json_scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_ROOM = 64 * 1024 };

static tt_status lease_call(tt__etcd_client *client, const char *path, const char *name, int64_t number,
                            int64_t deadline_ms, tt__span *answer) {
    char body[64];
    int size = snprintf(body, sizeof body, "{\"%s\":\"%" PRId64 "\"}", name, number);
    return tt__etcd_call(client, path, (tt__span){(const uint8_t *)body, (size_t)size}, ANSWER_ROOM, deadline_ms,
                         answer);
}

static bool read_number(tt__span object, const char *name, int64_t *number) {
    tt__span member;
    return tt__json_member(object, name, &member) && tt__json_i64(member, number);
}

tt_status tt__etcd_grant(tt__etcd_client *client, int64_t seconds, int64_t deadline_ms, int64_t *id, int64_t *granted) {
    tt__span answer;
    int64_t ttl;
    TT__TRY(lease_call(client, "/v3/lease/grant", "TTL", seconds, deadline_ms, &answer));
    if (!read_number(answer, "ID", id) || !read_number(answer, "TTL", &ttl))
        return tt__fail(TT_ERR_PROTOCOL, "%s: expected a lease from /v3/lease/grant, got none",
                        client->urls[client->current]);
    if (granted)
        *granted = ttl;
    return TT_OK;
}

tt_status tt__etcd_keep(tt__etcd_client *client, int64_t id, int64_t deadline_ms) {
    tt__span answer, result;
    int64_t ttl = 0;
    TT__TRY(lease_call(client, "/v3/lease/keepalive", "ID", id, deadline_ms, &answer));
    if (!tt__json_member(answer, "result", &result))
        return tt__fail(TT_ERR_PROTOCOL, "%s: expected the lease's state from /v3/lease/keepalive, got none",
                        client->urls[client->current]);
    if (!read_number(result, "TTL", &ttl) || ttl <= 0) /* left out: 0 */
        return tt__fail(TT_ERR_STATE, "the lease has ended, and its keys are gone: it was not kept alive in time");
    return TT_OK;
}

tt_status tt__etcd_revoke(tt__etcd_client *client, int64_t id, int64_t deadline_ms) {
    tt__span answer;
    tt_status status = lease_call(client, "/v3/lease/revoke", "ID", id, deadline_ms, &answer);
    return status && client->code == TT__ETCD_NOT_FOUND ? TT_OK : status;
}
