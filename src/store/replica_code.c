#ifdef TT__RAFT
#include "store/replica_code.h"

#include "store/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the entries in one message; one that is larger goes alone. */
#define ENTRIES_BYTES ((size_t)8 << 20)

void tt__replica_address(int member, uint64_t id, char address[TT__REPLICA_ADDRESS_SIZE]) {
    snprintf(address, TT__REPLICA_ADDRESS_SIZE, "%d/%" PRIu64, member, id);
}

int tt__replica_member_of(const char *address) {
    char *end;
    long member = strtol(address, &end, 10);
    return end == address || *end != '/' || member < 0 || member >= TT__REPLICAS_MAX ? -1 : (int)member;
}

static void put_u64s(tt__bytes *out, const uint64_t *numbers, size_t n) {
    for (size_t i = 0; i < n; i++)
        tt__store_put_u64(out, numbers[i]);
}

static void put_entries(tt__bytes *out, const struct raft_append_entries *m) {
    unsigned n = 0;
    for (size_t bytes = 0; n < m->n_entries && (!n || bytes + m->entries[n].buf.len <= ENTRIES_BYTES); n++)
        bytes += m->entries[n].buf.len;
    put_u64s(out, (uint64_t[]){m->term, m->prev_log_index, m->prev_log_term, m->leader_commit, n}, 5);
    for (unsigned i = 0; i < n; i++) {
        tt__store_put_u64(out, m->entries[i].term);
        tt__store_put_u8(out, (uint8_t)m->entries[i].type);
        tt__store_put_string(out, (tt__span){m->entries[i].buf.base, m->entries[i].buf.len});
    }
}

static void put_snapshot(tt__bytes *out, const struct raft_install_snapshot *m) {
    put_u64s(out, (uint64_t[]){m->term, m->last_index, m->last_term, m->conf_index, m->conf.n}, 5);
    for (unsigned i = 0; i < m->conf.n; i++) {
        tt__store_put_u8(out, (uint8_t)tt__replica_member_of(m->conf.servers[i].address));
        tt__store_put_u64(out, m->conf.servers[i].id);
        tt__store_put_u8(out, (uint8_t)m->conf.servers[i].role);
    }
    tt__store_put_string(out, (tt__span){m->data.base, m->data.len});
}

void tt__replica_put_message(tt__bytes *out, const struct raft_message *message) {
    tt__store_put_u8(out, (uint8_t)message->type);
    switch (message->type) {
    case RAFT_IO_APPEND_ENTRIES:
        put_entries(out, &message->append_entries);
        break;
    case RAFT_IO_APPEND_ENTRIES_RESULT: {
        const struct raft_append_entries_result *m = &message->append_entries_result;
        put_u64s(out, (uint64_t[]){m->term, m->rejected, m->last_log_index}, 3);
        break;
    }
    case RAFT_IO_REQUEST_VOTE: {
        const struct raft_request_vote *m = &message->request_vote;
        put_u64s(out, (uint64_t[]){m->term, m->candidate_id, m->last_log_index, m->last_log_term}, 4);
        tt__store_put_u8(out, m->disrupt_leader);
        tt__store_put_u8(out, m->pre_vote);
        break;
    }
    case RAFT_IO_REQUEST_VOTE_RESULT: {
        const struct raft_request_vote_result *m = &message->request_vote_result;
        tt__store_put_u64(out, m->term);
        tt__store_put_u8(out, m->vote_granted);
        tt__store_put_u8(out, (uint8_t)m->pre_vote);
        break;
    }
    case RAFT_IO_INSTALL_SNAPSHOT:
        put_snapshot(out, &message->install_snapshot);
        break;
    default: {
        const struct raft_timeout_now *m = &message->timeout_now;
        put_u64s(out, (uint64_t[]){m->term, m->last_log_index, m->last_log_term}, 3);
    }
    }
}

/* ---- reading */

/* The entries' bytes lie in one block, which libraft frees with the last of them. */
static bool take_entries(const tt__raft *raft, tt__replica_reader *reader, struct raft_append_entries *m) {
    m->term = tt__replica_take(reader, 8);
    m->prev_log_index = tt__replica_take(reader, 8);
    m->prev_log_term = tt__replica_take(reader, 8);
    m->leader_commit = tt__replica_take(reader, 8);
    uint64_t n = tt__replica_take(reader, 8);
    m->entries = NULL;
    m->n_entries = (unsigned)n;
    if (reader->bad || n > reader->rest.size / 17 || m->prev_log_index > UINT64_MAX - n)
        return false;
    /* libraft takes what it has for what the leader has: where only the first of many entries came, it does not
     * know. */
    if (m->leader_commit > m->prev_log_index + n)
        m->leader_commit = m->prev_log_index + n;
    if (!n)
        return !reader->rest.size;
    m->entries = raft->raft_malloc(n * sizeof *m->entries);
    char *block = raft->raft_malloc(reader->rest.size), *at = block;
    for (uint64_t i = 0; m->entries && block && i < n; i++) {
        struct raft_entry *entry = &m->entries[i];
        entry->term = tt__replica_take(reader, 8);
        entry->type = (unsigned short)tt__replica_take(reader, 1);
        tt__span bytes = tt__replica_take_span(reader);
        if (bytes.size)
            memcpy(at, bytes.data, bytes.size);
        entry->buf = (struct raft_buffer){at, bytes.size};
        entry->batch = block;
        at += bytes.size;
        raft_term before = i ? entry[-1].term : m->prev_log_term;
        reader->bad = reader->bad || entry->type < RAFT_COMMAND || entry->type > RAFT_CHANGE || !entry->term ||
                      entry->term < before || entry->term > m->term;
    }
    if (m->entries && block && !reader->bad && !reader->rest.size)
        return true;
    raft->raft_free(m->entries);
    raft->raft_free(block);
    return false;
}

static bool take_configuration(const tt__raft *raft, tt__replica_reader *reader, struct raft_configuration *conf) {
    char address[TT__REPLICA_ADDRESS_SIZE];
    raft->raft_configuration_init(conf);
    for (uint64_t n = tt__replica_take(reader, 8); n && !reader->bad; n--) {
        int member = (int)tt__replica_take(reader, 1);
        uint64_t id = tt__replica_take(reader, 8);
        int role = (int)tt__replica_take(reader, 1);
        tt__replica_address(member, id, address);
        reader->bad = reader->bad || !id || conf->n == TT__REPLICAS_MAX ||
                      raft->raft_configuration_add(conf, id, address, role) != 0;
    }
    return !reader->bad;
}

static bool take_snapshot(const tt__raft *raft, tt__replica_reader *reader, struct raft_install_snapshot *m) {
    m->term = tt__replica_take(reader, 8);
    m->last_index = tt__replica_take(reader, 8);
    m->last_term = tt__replica_take(reader, 8);
    m->conf_index = tt__replica_take(reader, 8);
    bool good = take_configuration(raft, reader, &m->conf);
    tt__span data = tt__replica_take_span(reader);
    m->data = (struct raft_buffer){raft->raft_malloc(data.size ? data.size : 1), data.size};
    if (good && !reader->bad && !reader->rest.size && m->data.base) {
        if (data.size)
            memcpy(m->data.base, data.data, data.size);
        return true;
    }
    raft->raft_configuration_close(&m->conf);
    raft->raft_free(m->data.base);
    return false;
}

static void take_vote(tt__replica_reader *reader, struct raft_request_vote *m) {
    m->term = tt__replica_take(reader, 8);
    m->candidate_id = tt__replica_take(reader, 8);
    m->last_log_index = tt__replica_take(reader, 8);
    m->last_log_term = tt__replica_take(reader, 8);
    m->disrupt_leader = tt__replica_take(reader, 1) != 0;
    m->pre_vote = tt__replica_take(reader, 1) != 0;
}

bool tt__replica_take_message(const tt__raft *raft, tt__span bytes, struct raft_message *message) {
    tt__replica_reader reader = {.rest = bytes};
    *message = (struct raft_message){.type = (unsigned short)tt__replica_take(&reader, 1)};
    switch (message->type) {
    case RAFT_IO_APPEND_ENTRIES:
        return take_entries(raft, &reader, &message->append_entries);
    case RAFT_IO_APPEND_ENTRIES_RESULT:
        message->append_entries_result.term = tt__replica_take(&reader, 8);
        message->append_entries_result.rejected = tt__replica_take(&reader, 8);
        message->append_entries_result.last_log_index = tt__replica_take(&reader, 8);
        break;
    case RAFT_IO_REQUEST_VOTE:
        take_vote(&reader, &message->request_vote);
        break;
    case RAFT_IO_REQUEST_VOTE_RESULT:
        message->request_vote_result.term = tt__replica_take(&reader, 8);
        message->request_vote_result.vote_granted = tt__replica_take(&reader, 1) != 0;
        message->request_vote_result.pre_vote = (raft_tribool)tt__replica_take(&reader, 1);
        break;
    case RAFT_IO_INSTALL_SNAPSHOT:
        return take_snapshot(raft, &reader, &message->install_snapshot);
    case RAFT_IO_TIMEOUT_NOW:
        message->timeout_now.term = tt__replica_take(&reader, 8);
        message->timeout_now.last_log_index = tt__replica_take(&reader, 8);
        message->timeout_now.last_log_term = tt__replica_take(&reader, 8);
        break;
    default:
        return false;
    }
    return !reader.bad && !reader.rest.size;
}

void tt__replica_free_message(const tt__raft *raft, struct raft_message *message) {
    if (message->type == RAFT_IO_APPEND_ENTRIES && message->append_entries.n_entries) {
        raft->raft_free(message->append_entries.entries[0].batch);
        raft->raft_free(message->append_entries.entries);
    } else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
        raft->raft_configuration_close(&message->install_snapshot.conf);
        raft->raft_free(message->install_snapshot.data.base);
    }
}
#endif
typedef int tt__replica_code_is_optional; /* ISO C wants something in every file */
