#ifdef TT__RAFT
#include "store/replica_log.h"

static raft_index log_last(const struct raft_log *log) {
    return log->offset + (log->front <= log->back ? log->back - log->front : log->size - log->front + log->back);
}

bool tt__replica_log_has(const struct raft_log *log, raft_index index) {
    return index > log->offset && index <= log_last(log);
}

static const struct raft_entry *log_entry(const struct raft_log *log, raft_index index) {
    return &log->entries[(log->front + (index - 1 - log->offset)) % log->size];
}

raft_term tt__replica_log_term(const struct raft_log *log, raft_index index) {
    if (index && index == log->snapshot.last_index)
        return log->snapshot.last_term;
    return tt__replica_log_has(log, index) ? log_entry(log, index)->term : 0;
}

size_t tt__replica_log_bytes(const struct raft_log *log, raft_index after) {
    raft_index last = log_last(log);
    size_t bytes = 0;
    for (raft_index i = after < log->offset ? log->offset + 1 : after + 1; i <= last; i++)
        bytes += log_entry(log, i)->buf.len;
    return bytes;
}

unsigned tt__replica_log_fit(const struct raft_log *log, raft_index last, size_t bytes, unsigned most) {
    unsigned n = 0;
    size_t sum = 0;
    while (n < most && n < last && tt__replica_log_has(log, last - n)) {
        sum += log_entry(log, last - n)->buf.len;
        if (n && sum > bytes)
            break;
        n++;
    }
    return n ? n : 1;
}
#endif
typedef int tt__replica_log_is_optional; /* ISO C wants something in every file */
