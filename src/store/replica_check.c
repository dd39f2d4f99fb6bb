#ifdef TT__RAFT
#include "store/replica_check.h"

#include "base/format.h"
#include "store/replica_code.h"
#include "store/replica_log.h"
#include "store/replica_state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Nobody comes that far; from there on adding one may go wrong. A term grows by elections, which take a second. */
#define INDEX_MAX (UINT64_C(1) << 62)
#define TERM_LEAP (UINT64_C(1) << 32)

/* Fewer voters would not have agreed on it: most of three, and of what is left of five when one after the other
 * went. */
enum { VOTERS_MIN = 2, ENCODING = 1 };

typedef struct check {
    const struct raft *raft;
    int members;
    raft_id from;
    char *why;
} check;

TT_PRINTF(2, 3) static tt__replica_verdict lie(const check *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tt__vformat(c->why, TT__REPLICA_WHY_SIZE, format, args);
    va_end(args);
    return TT__REPLICA_LIE;
}

/* ---- what all messages have */

static tt__replica_verdict check_term(const check *c, raft_term term) {
    if (!term || (term > c->raft->current_term && term - c->raft->current_term > TERM_LEAP) || term > INDEX_MAX)
        return lie(c, "expected a term from 1, near %llu, got %llu", c->raft->current_term, term);
    return TT__REPLICA_FINE;
}

static tt__replica_verdict check_leads(const check *c, raft_term term) {
    if (check_term(c, term))
        return TT__REPLICA_LIE;
    if (c->raft->state == RAFT_LEADER && term == c->raft->current_term)
        return lie(c, "expected nobody else to lead in term %llu, in which this replica leads", term);
    return TT__REPLICA_FINE;
}

/* The last entry that somebody has, or the one before others. */
static tt__replica_verdict check_log_place(const check *c, raft_index index, raft_term term, raft_term most) {
    if (index > INDEX_MAX || !index != !term || term > most)
        return lie(c, "expected a place in the log, its term %llu at most, got entry %llu of term %llu", most, index,
                   term);
    return TT__REPLICA_FINE;
}

/* ---- configurations */

typedef struct server {
    raft_id id;
    int member, role;
} server;

static tt__replica_verdict check_servers(const check *c, const server *servers, size_t n) {
    int voters = 0;
    for (size_t i = 0; i < n; i++) {
        const server *s = &servers[i];
        bool good = s->id && s->member >= 0 && s->member < c->members &&
                    (s->role == RAFT_STANDBY || s->role == RAFT_VOTER || s->role == RAFT_SPARE);
        for (size_t j = 0; j < i && good; j++)
            good = servers[j].id != s->id && servers[j].member != s->member;
        if (!good)
            return lie(c, "expected a configuration of %d members, each once, got one with member %d, id %llu, role %d",
                       c->members, s->member, s->id, s->role);
        voters += s->role == RAFT_VOTER;
    }
    if (voters < VOTERS_MIN)
        return lie(c, "expected a configuration of %d voters at least, got %d", VOTERS_MIN, voters);
    return TT__REPLICA_FINE;
}

/* Read an address and step over it. False: it is none. */
static bool take_server(tt__replica_reader *reader, server *s) {
    const char *address = (const char *)reader->rest.data;
    char expected[TT__REPLICA_ADDRESS_SIZE];
    const void *end = reader->rest.size ? memchr(address, 0, reader->rest.size) : NULL;
    if (!end)
        return false;
    s->member = tt__replica_member_of(address);
    tt__replica_address(s->member, s->id, expected);
    size_t size = (size_t)((const char *)end - address) + 1;
    reader->rest.data += size;
    reader->rest.size -= size;
    return !strcmp(expected, address);
}

/* As libraft writes it: a version, how many, and of each its id, its address and its role. */
static tt__replica_verdict check_change(const check *c, const struct raft_buffer *buffer) {
    tt__replica_reader reader = {.rest = {buffer->base, buffer->len}};
    server servers[TT__REPLICAS_MAX];
    uint64_t version = tt__replica_take(&reader, 1), n = tt__replica_take(&reader, 8);
    bool good = version == ENCODING && n <= (uint64_t)c->members;
    for (uint64_t i = 0; good && i < n; i++) {
        servers[i].id = tt__replica_take(&reader, 8);
        good = take_server(&reader, &servers[i]);
        servers[i].role = (int)tt__replica_take(&reader, 1);
    }
    if (!good || reader.bad)
        return lie(c, "expected a configuration of %d members at most, got %zu bytes that are none", c->members,
                   buffer->len);
    return check_servers(c, servers, (size_t)n);
}

/* ---- the messages */

/* Where the entries follow what was agreed on, and libraft can find its way back. */
static tt__replica_verdict check_where(const check *c, const struct raft_append_entries *m) {
    const struct raft *raft = c->raft;
    raft_term there = m->prev_log_index ? tt__replica_log_term(&raft->log, m->prev_log_index) : 0;
    if (there && there != m->prev_log_term && m->prev_log_index <= raft->commit_index)
        return lie(c, "expected entry %llu to be of term %llu, as was agreed on, got term %llu", m->prev_log_index,
                   there, m->prev_log_term);
    if (there != m->prev_log_term)
        return TT__REPLICA_FINE; /* it says that it does not have that */
    if (m->n_entries && m->prev_log_index < raft->log.offset)
        return lie(c, "expected entries after %llu, the others were agreed on, got those after %llu", raft->log.offset,
                   m->prev_log_index);
    for (unsigned i = 0; i < m->n_entries; i++) {
        raft_index index = m->prev_log_index + 1 + i;
        there = tt__replica_log_term(&raft->log, index);
        if (there == m->entries[i].term)
            continue;
        if (there && index <= raft->commit_index)
            return lie(c, "expected entry %llu to be of term %llu, as was agreed on, got term %llu", index, there,
                       m->entries[i].term);
        if (there && raft->configuration_uncommitted_index >= index &&
            !tt__replica_log_has(&raft->log, raft->configuration_index))
            return TT__REPLICA_LOST; /* the configuration before is gone from the log */
        break;
    }
    return TT__REPLICA_FINE;
}

static tt__replica_verdict check_entries(const check *c, const struct raft_append_entries *m) {
    if (check_leads(c, m->term) || check_log_place(c, m->prev_log_index, m->prev_log_term, m->term))
        return TT__REPLICA_LIE;
    for (unsigned i = 0; i < m->n_entries; i++) {
        const struct raft_entry *e = &m->entries[i];
        if (e->type == RAFT_CHANGE && check_change(c, &e->buf))
            return TT__REPLICA_LIE;
        if (e->type == RAFT_COMMAND && !tt__replica_entry_good((tt__span){e->buf.base, e->buf.len}))
            return lie(c, "expected a write of a client, got %zu bytes that are none", e->buf.len);
    }
    return m->term < c->raft->current_term ? TT__REPLICA_FINE : check_where(c, m);
}

static tt__replica_verdict check_result(const check *c, const struct raft_append_entries_result *m) {
    if (check_term(c, m->term))
        return TT__REPLICA_LIE;
    if (m->rejected > INDEX_MAX || m->last_log_index > INDEX_MAX)
        return lie(c, "expected a place in the log, got entries %llu and %llu", m->rejected, m->last_log_index);
    return TT__REPLICA_FINE;
}

static tt__replica_verdict check_vote(const check *c, const struct raft_request_vote *m) {
    if (check_term(c, m->term) || check_log_place(c, m->last_log_index, m->last_log_term, m->term))
        return TT__REPLICA_LIE;
    if (m->candidate_id != c->from)
        return lie(c, "expected one who asks for a vote for itself, %llu, got %llu", c->from, m->candidate_id);
    if (m->disrupt_leader)
        return lie(c, "expected one who asks for a vote when nobody leads; no replica hands over");
    return TT__REPLICA_FINE;
}

static tt__replica_verdict check_voted(const check *c, const struct raft_request_vote_result *m) {
    bool early = m->pre_vote == raft_tribool_true;
    raft_term asked = c->raft->current_term + early;
    if (check_term(c, m->term))
        return TT__REPLICA_LIE;
    if (!early && m->pre_vote != raft_tribool_false)
        return lie(c, "expected a vote, got one of kind %d", (int)m->pre_vote);
    if ((m->vote_granted || early) && m->term > asked)
        return lie(c, "expected a vote in term %llu at most, got one in term %llu", asked, m->term);
    return TT__REPLICA_FINE;
}

static tt__replica_verdict check_snapshot(const check *c, const struct raft_install_snapshot *m) {
    server servers[TT__REPLICAS_MAX];
    raft_term there = tt__replica_log_term(&c->raft->log, m->last_index);
    if (check_leads(c, m->term) || check_log_place(c, m->last_index, m->last_term, m->term))
        return TT__REPLICA_LIE;
    if (!m->last_index || !m->conf_index || m->conf_index > m->last_index || m->conf.n > TT__REPLICAS_MAX)
        return lie(c, "expected a state of entry 1 or later, its configuration not of a later one, got %llu and %llu",
                   m->last_index, m->conf_index);
    for (unsigned i = 0; i < m->conf.n; i++)
        servers[i] =
            (server){m->conf.servers[i].id, tt__replica_member_of(m->conf.servers[i].address), m->conf.servers[i].role};
    if (check_servers(c, servers, m->conf.n))
        return TT__REPLICA_LIE;
    if (!tt__replica_saved_good((tt__span){m->data.base, m->data.len}))
        return lie(c, "expected all that the store holds, got %zu bytes that are no such thing", m->data.len);
    if (m->term >= c->raft->current_term && there && there != m->last_term && m->last_index <= c->raft->commit_index)
        return lie(c, "expected entry %llu to be of term %llu, as was agreed on, got a state with term %llu",
                   m->last_index, there, m->last_term);
    return TT__REPLICA_FINE;
}

tt__replica_verdict tt__replica_check(const struct raft *raft, int members, raft_id from,
                                      const struct raft_message *message, char why[TT__REPLICA_WHY_SIZE]) {
    const check c = {raft, members, from, why};
    if (from == raft->id)
        return lie(&c, "expected another replica, got one with this one's id, %llu", from);
    switch (message->type) {
    case RAFT_IO_APPEND_ENTRIES:
        return check_entries(&c, &message->append_entries);
    case RAFT_IO_APPEND_ENTRIES_RESULT:
        return check_result(&c, &message->append_entries_result);
    case RAFT_IO_REQUEST_VOTE:
        return check_vote(&c, &message->request_vote);
    case RAFT_IO_REQUEST_VOTE_RESULT:
        return check_voted(&c, &message->request_vote_result);
    case RAFT_IO_INSTALL_SNAPSHOT:
        return check_snapshot(&c, &message->install_snapshot);
    default:
        return lie(&c, "expected none that hands over to another, got a message of kind %d", message->type);
    }
}
#endif
typedef int tt__replica_check_is_optional; /* ISO C wants something in every file */
