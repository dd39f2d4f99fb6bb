#include "launch/cluster/blob.h"

#include "base/error.h"
#include "base/files/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t MAGIC = UINT64_C(0x31626f6c42747454); /* "TttBlob1" */

typedef struct header {
    uint64_t magic;
    uint32_t ranks, rank_size;
} header;

static bool is_of_node(const tt__seen_rank *seen, int node) { return seen->rank.node == node; }

tt_status tt__blob_pack(const tt__snapshot *snapshot, int node, void **bytes, size_t *size) {
    header head = {MAGIC, 0, sizeof(tt__job_rank)};
    *size = sizeof head;
    for (int i = 0; i < snapshot->n; i++)
        if (is_of_node(&snapshot->ranks[i], node)) {
            head.ranks++;
            *size += sizeof(tt__job_rank) + (snapshot->ranks[i].recorder ? snapshot->ranks[i].rank.at.size : 0);
        }
    char *to = *bytes = malloc(*size);
    if (!to)
        return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks do", snapshot->n);
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (int i = 0; i < snapshot->n; i++) {
        const tt__seen_rank *seen = &snapshot->ranks[i];
        tt__job_rank rank = seen->rank;
        if (!is_of_node(seen, node))
            continue;
        rank.at.offset = 0;
        rank.at.size = seen->recorder ? rank.at.size : 0;
        memcpy(to, &rank, sizeof rank);
        memcpy(to + sizeof rank, seen->recorder ? seen->recorder : "", rank.at.size);
        to += sizeof rank + rank.at.size;
    }
    return TT_OK;
}

/* Unpack one rank. Its recorder gets a file of its own, as if the rank had handed it in here. */
static tt_status unpack_rank(tt__snapshot *snapshot, const tt__job_rank *rank, const void *recorder) {
    int memory = rank->at.size ? tt__sealed_memory("tutti-record", rank->at.size) : -1;
    if (rank->at.size && (memory < 0 || pwrite(memory, recorder, rank->at.size, 0) != (ssize_t)rank->at.size)) {
        int errnum = errno;
        if (memory >= 0)
            close(memory);
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't keep what rank %d did", rank->rank);
    }
    return tt__snapshot_add(snapshot, rank, memory);
}

tt_status tt__blob_unpack(tt__snapshot *snapshot, const void *bytes, size_t size) {
    const char *at = bytes, *end = at + size;
    header head = {0};
    if (size >= sizeof head)
        memcpy(&head, at, sizeof head);
    if (head.magic != MAGIC || head.rank_size != sizeof(tt__job_rank))
        return tt__fail(TT_ERR_PROTOCOL, "another node runs another version of Tutti");
    at += sizeof head;
    for (uint32_t i = 0; i < head.ranks; i++) {
        tt__job_rank rank;
        if ((size_t)(end - at) < sizeof rank)
            return tt__fail(TT_ERR_PROTOCOL, "what another node says of its ranks is cut short");
        memcpy(&rank, at, sizeof rank);
        at += sizeof rank;
        if ((size_t)(end - at) < rank.at.size)
            return tt__fail(TT_ERR_PROTOCOL, "what another node says of its ranks is cut short");
        TT__TRY(unpack_rank(snapshot, &rank, at));
        at += rank.at.size;
    }
    return TT_OK;
}
