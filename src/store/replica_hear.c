/* What the other members say. */
#ifdef TT__RAFT
#include "base/clock.h"
#include "base/error.h"
#include "store/replica_check.h"
#include "store/replica_own.h"

#include <stdio.h>
#include <string.h>

/* Which member speaks on this connection: -1, none. */
static int speaker(const tt__replica *r, const tt__store_session *session) {
    for (int i = 0; i < r->place.n; i++)
        if (r->incoming[i] == session)
            return i;
    return -1;
}

/* Close a member's connection for what it says. */
static void refuse_replica(const tt__replica *r, tt__store_session *session, int member, const char *why) {
    char where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(r->place.at[member].host, r->place.at[member].port, where);
    tt__store_session_break(session, "replica %d, %s: %s", member + 1, where, why);
}

/* Is an id this one's, or that of another member? */
static bool is_taken(const tt__replica *r, int member, uint64_t id) {
    bool taken = id == r->id;
    for (int i = 0; i < r->place.n; i++)
        taken = taken || (i != member && r->incoming[i] && r->incoming_id[i] == id);
    for (unsigned i = 0; i < r->raft.configuration.n && r->started; i++) {
        const struct raft_server *server = &r->raft.configuration.servers[i];
        taken = taken || (server->id == id && tt__replica_member_of(server->address) != member);
    }
    return taken;
}

/* A member was started with other addresses, or in another order. It comes again and again: that is said once. */
static void refuse_list(tt__replica *r, tt__store_session *session, const tt__replica_hello *hello) {
    char list[sizeof *r->refused], *last = r->refused[hello->member];
    snprintf(list, sizeof list, "%.*s", (int)hello->list.size, (const char *)hello->list.data);
    for (char *c = list; *c; c++)
        *c = *c > ' ' && *c <= '~' ? *c : '?';
    if (strcmp(list, last) != 0)
        tt__refusals_log(
            &r->all->admission.refusals, "store",
            "refused a replica: expected it to be started with --replicas %s, got %s: all need one list, in "
            "one order",
            r->list, list);
    memcpy(last, list, sizeof list);
    session->moved = true;
    tt__store_session_break(session, "another list of replicas");
}

static void answer_hello(const tt__replica *r, tt__store_session *session) {
    const tt__replica_hello own = {r->member, r->id, r->cluster, {(const uint8_t *)r->list, strlen(r->list)}};
    tt__bytes answer = {0};
    tt__replica_put_hello(&answer, &own);
    tt__store_put_string(&session->out, (tt__span){answer.data, answer.size});
    tt__bytes_free(&answer);
}

void tt__replica_hear_hello(tt__replica *r, tt__store_session *session, tt__span words) {
    tt__replica_hello hello;
    bool good = tt__replica_take_hello(words, &hello);
    if (good && !tt__replica_place_agrees(&r->place, hello.list)) {
        answer_hello(r, session); /* by which it sees why */
        refuse_list(r, session, &hello);
        return;
    }
    if (!good || hello.member >= r->place.n || hello.member == r->member) {
        tt__store_session_break(session, "it is no replica of this store");
        return;
    }
    if (is_taken(r, hello.member, hello.id) || speaker(r, session) >= 0) {
        refuse_replica(r, session, hello.member, "expected it to say once who it is, with an id of its own");
        return;
    }
    tt__store_session *former = r->incoming[hello.member];
    if (former && former != session) {
        former->moved = true;
        tt__store_session_break(former, "this replica has come back, over another connection");
    }
    r->incoming[hello.member] = session;
    r->incoming_id[hello.member] = hello.id;
    *r->refused[hello.member] = '\0';
    answer_hello(r, session);
}

static void hear_raft(tt__replica *r, tt__store_session *session, int member, tt__span words) {
    char address[TT__REPLICA_ADDRESS_SIZE], why[TT__REPLICA_WHY_SIZE];
    struct raft_message message;
    if (!r->started || *r->failed || r->lost)
        return;
    tt__replica_io_settle(&r->io);
    if (!tt__replica_take_message(r->lib, words, &message)) {
        snprintf(why, sizeof why, "expected a message of libraft's, got %zu bytes that are none", words.size);
        refuse_replica(r, session, member, why);
        return;
    }
    tt__replica_verdict verdict = tt__replica_check(&r->raft, r->place.n, r->incoming_id[member], &message, why);
    if (verdict) {
        tt__replica_free_message(r->lib, &message);
        r->lost = verdict == TT__REPLICA_LOST;
        if (verdict == TT__REPLICA_LIE)
            refuse_replica(r, session, member, why);
        return;
    }
    r->heard_ms = tt__now_ms();
    tt__replica_address(member, r->incoming_id[member], address);
    message.server_id = r->incoming_id[member];
    message.server_address = address;
    tt__replica_io_receive(&r->io, &message);
}

/* The first one begins, with its own id as that of the cluster: to join. 0: none. */
static uint64_t hear_begin(tt__replica *r, tt__store_session *session, int member, uint64_t cluster,
                           tt__replica_reader *reader) {
    uint64_t ids[TT__REPLICAS_MAX] = {0};
    bool good = member == 0;
    for (int i = 0; i < r->place.n; i++) {
        ids[i] = tt__replica_take(reader, 8);
        good = good && ids[i];
        for (int j = 0; j < i; j++)
            good = good && ids[j] != ids[i];
    }
    if (!good || reader->bad || reader->rest.size || cluster != ids[0] || ids[0] != r->incoming_id[0]) {
        refuse_replica(r, session, member, "expected replica 1 to begin, with the ids of all");
        return 0;
    }
    if (ids[r->member] != r->id)
        return 0; /* it was said to who was here before */
    memcpy(r->begun, ids, sizeof ids);
    return cluster;
}

uint64_t tt__replica_hear_words(tt__replica *r, tt__store_session *session, tt__span words) {
    tt__replica_reader reader = {.rest = words};
    uint64_t cluster = tt__replica_take(&reader, 8), what = tt__replica_take(&reader, 1);
    int member = speaker(r, session);
    if (member < 0)
        tt__store_session_break(session, "it speaks like a replica, but has not said which");
    else if (reader.bad || !cluster || what > TT__REPLICA_RAFT)
        refuse_replica(r, session, member, "expected a replica's words, got others");
    else if (what == TT__REPLICA_RAFT && cluster == r->cluster)
        hear_raft(r, session, member, reader.rest);
    else if (what == TT__REPLICA_BEGIN && !r->cluster)
        return hear_begin(r, session, member, cluster, &reader);
    else if (what == TT__REPLICA_WELCOME && !r->cluster)
        return cluster;
    return 0;
}
#endif
typedef int tt__replica_hear_is_optional; /* ISO C wants something in every file */
