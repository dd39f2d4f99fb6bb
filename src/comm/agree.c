/* The agreement check: every rank publishes each call before it touches anything of a peer, and compares.
 *
 * The arrival word of call k lies in slot k mod 2. A rank publishes call k+1 only after it has seen all words of call k, so while
 * a rank waits for the words of call k, a peer's slot k mod 2 holds call k or call k-2, never k+2. What belongs to call k
 * (record, payload) therefore stays until everybody has arrived at k+1, which a rank does when it is through with k. */
#include "base/error.h"
#include "comm/group.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const uint64_t SYMMETRIC_BIT = UINT64_C(1) << 32;

/* 31 bits of the signature, in the word's upper bits. Each step is a bijection of 64 bits but the last. */
static uint64_t signature(const tt__call *call) {
    uint64_t kind = (uint64_t)call->op | (uint64_t)call->dtype << 8 | (uint64_t)call->reduce_op << 16 |
                    (uint64_t)(uint32_t)call->root << 24;
    uint64_t h = (call->count * UINT64_C(0x9e3779b97f4a7c15)) ^ kind;
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h & ~((UINT64_C(1) << 33) - 1);
}

static void copy_file_name(tt__record *record, const char *path) {
    const char *name = path ? strrchr(path, '/') : NULL;
    name = name ? name + 1 : path ? path : "?";
    size_t n = strnlen(name, sizeof record->file - 1);
    memcpy(record->file, name, n);
    record->file[n] = '\0';
    record->file_ptr = path;
}

static void write_record(tt__record *record, const tt__call *call, uint32_t seq) {
    record->seq = seq;
    record->op = (uint8_t)call->op;
    record->dtype = (uint8_t)call->dtype;
    record->reduce_op = (uint8_t)call->reduce_op;
    record->root = call->root;
    record->count = call->count;
    record->line = call->line;
    if (record->file_ptr != call->file || !record->file[0])
        copy_file_name(record, call->file);
}

void tt__publish(tt_group *group, const tt__call *call, const void *payload, size_t bytes, const void *symmetric) {
    tt__peer *self = &group->peers[group->rank];
    uint32_t seq = ++group->seq;
    tt__slot *slot = &self->control->slots[seq & 1];
    uint64_t word = signature(call) | seq;
    write_record(&self->control->records[seq & 1], call, seq);
    if (symmetric) {
        word |= SYMMETRIC_BIT;
        slot->offset = (uint64_t)((const unsigned char *)symmetric - self->shm.base);
    }
    if (bytes)
        memcpy(bytes <= sizeof slot->near ? slot->near : slot->far, payload, bytes);
    atomic_store_explicit(&slot->word, word, memory_order_release);
    group->unrung = true;
}

static uint64_t word_of(const tt_group *group, int r, uint32_t seq) {
    return atomic_load_explicit(&group->peers[r].control->slots[seq & 1].word, memory_order_acquire);
}

const void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes) {
    const tt__slot *slot = &group->peers[r].control->slots[seq & 1];
    return bytes <= sizeof slot->near ? slot->near : slot->far;
}

bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq) { return word_of(group, r, seq) & SYMMETRIC_BIT; }

void *tt__symmetric(const tt_group *group, int r, uint32_t seq) {
    return group->peers[r].shm.base + group->peers[r].control->slots[seq & 1].offset;
}

void tt__ranks_text(uint64_t ranks, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, ranks & (ranks - 1) ? "ranks " : "rank ");
    const char *comma = "";
    for (int r = 0; r < TT__MAX_WORLD && n < size; r++) {
        if (!(ranks >> r & 1))
            continue;
        int last = r;
        while (last + 1 < TT__MAX_WORLD && ranks >> (last + 1) & 1)
            last++;
        n += (size_t)snprintf(text + n, size - n, last > r ? "%s%d-%d" : "%s%d", comma, r, last);
        comma = ", ";
        r = last;
    }
}

void tt__call_text(const tt_group *group, int r, uint32_t seq, char *text, size_t size) {
    static const char *const names[] = {"barrier", "all_reduce", "broadcast", "reduce", "all_gather", "alloc", "free"};
    const tt__record *record = &group->peers[r].control->records[seq & 1];
    const char *dtype = tt_dtype_name((tt_dtype)record->dtype),
               *op = tt_reduce_op_name((tt_reduce_op)record->reduce_op);
    unsigned long long count = record->count;
    const char *name = record->op < sizeof names / sizeof *names ? names[record->op] : "?";
    char arguments[96] = "";
    switch ((tt__op)record->op) {
    case TT__OP_BARRIER:
        break;
    case TT__OP_ALL_REDUCE:
        snprintf(arguments, sizeof arguments, "%s x %llu, %s", dtype, count, op);
        break;
    case TT__OP_BROADCAST:
        snprintf(arguments, sizeof arguments, "%s x %llu, root %d", dtype, count, record->root);
        break;
    case TT__OP_REDUCE:
        snprintf(arguments, sizeof arguments, "%s x %llu, %s, root %d", dtype, count, op, record->root);
        break;
    case TT__OP_ALL_GATHER:
        snprintf(arguments, sizeof arguments, "%s x %llu", dtype, count);
        break;
    case TT__OP_ALLOC:
        snprintf(arguments, sizeof arguments, "%llu bytes", count);
        break;
    case TT__OP_FREE:
        if (record->count == UINT64_MAX)
            snprintf(arguments, sizeof arguments, "NULL");
        else
            snprintf(arguments, sizeof arguments, "the allocation at offset %llu", count);
        break;
    }
    int n = snprintf(text, size, "%s(%s) %s %.80s", name, arguments, record->line ? "at" : "in", record->file);
    if (record->line && n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, ":%d", record->line);
}

/* After a disagreement: give those who have not arrived a moment, so that the text can tell the odd one from the many. */
static uint64_t arrived_after_grace(tt_group *group, uint32_t seq) {
    uint64_t arrived = 0, all = group->world == 64 ? UINT64_MAX : (UINT64_C(1) << group->world) - 1;
    for (int tries = 0; tries < 50 && arrived != all; tries++) {
        if (tries)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        for (int r = 0; r < group->world; r++)
            if ((uint32_t)word_of(group, r, seq) == seq)
                arrived |= UINT64_C(1) << r;
    }
    return arrived;
}

/* The ranks among `arrived` that made the same call as rank r. */
static uint64_t same_call(const tt_group *group, int r, uint32_t seq, uint64_t arrived) {
    uint64_t same = 0, word = word_of(group, r, seq) | SYMMETRIC_BIT;
    for (int i = 0; i < group->world; i++)
        if (arrived >> i & 1 && (word_of(group, i, seq) | SYMMETRIC_BIT) == word)
            same |= UINT64_C(1) << i;
    return same;
}

/* "rank 1 called A while ranks 0, 2 called B": the smallest set of ranks first; of equal ones, that with the higher ranks. */
static tt_status fail_mismatch(tt_group *group, uint32_t seq) {
    uint64_t left = arrived_after_grace(group, seq);
    char text[1024];
    size_t n = 0;
    for (int sets = 0; left && sets < 3 && n < sizeof text; sets++) {
        uint64_t rarest = 0;
        for (int r = 0; r < group->world; r++) {
            uint64_t same = left >> r & 1 ? same_call(group, r, seq, left) : 0;
            if (same && (!rarest || __builtin_popcountll(same) <= __builtin_popcountll(rarest)))
                rarest = same;
        }
        char ranks[128], call[256];
        tt__ranks_text(rarest, ranks, sizeof ranks);
        tt__call_text(group, __builtin_ctzll(rarest), seq, call, sizeof call);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s called %s", sets ? " while " : "", ranks, call);
        left &= ~rarest;
    }
    tt__fail(TT_ERR_MISMATCH, "call %u of the group differs: %s. All ranks must make the same calls in the same order.",
             seq, text);
    return tt__group_fail(group);
}

bool tt__disagrees(const tt_group *group, uint32_t seq) {
    uint64_t mine = word_of(group, group->rank, seq);
    for (int r = 0; r < group->world; r++) {
        uint64_t word = word_of(group, r, seq);
        if ((uint32_t)word == seq && (word ^ mine) & ~SYMMETRIC_BIT)
            return true;
    }
    return false;
}

tt_status tt__agree(tt_group *group, uint32_t seq, bool *symmetric) {
    uint64_t mine = word_of(group, group->rank, seq), differ = 0, all = mine;
    for (int r = 0; r < group->world; r++) {
        uint64_t word = word_of(group, r, seq);
        differ |= word ^ mine;
        all &= word;
    }
    *symmetric = all & SYMMETRIC_BIT;
    return differ & ~SYMMETRIC_BIT ? fail_mismatch(group, seq) : TT_OK;
}

tt_status tt__meet(tt_group *group, const tt__call *call, const void *payload, size_t bytes, const void *symmetric,
                   bool *all_symmetric) {
    tt__publish(group, call, payload, bytes, symmetric);
    TT__TRY(tt__wait_arrivals(group, group->seq));
    return tt__agree(group, group->seq, all_symmetric);
}
