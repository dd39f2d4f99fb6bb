/* The agreement check: every rank publishes each call before it touches anything of a peer, and compares.
 *
 * The arrival word of call k lies in slot k mod 2. A rank publishes call k+1 only after it has seen all words of call k, so while
 * a rank waits for the words of call k, a peer's slot k mod 2 holds call k or call k-2, never k+2. What belongs to call k
 * (payload, offset) therefore stays until everybody has arrived at k+1, which a rank does when it is through with k. */
#include "base/error.h"
#include "comm/collective/p2p.h"
#include "comm/group.h"
#include "comm/signature.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Each step is a bijection of 64 bits. */
static inline uint64_t mix(uint64_t h) {
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

/* Of calls whose ranks pass different numbers, what must be the same all the same. Recorded as their tag. */
static uint32_t hash_of_lists(const tt_group *group, const tt_call *call) {
    uint64_t h = call->buffers;
    if (call->op == TT_OP_ALL_GATHER_V || call->op == TT_OP_ALL_REDUCE_COALESCED)
        for (size_t i = 0; i < (call->op == TT_OP_ALL_GATHER_V ? (size_t)group->size : call->buffers); i++)
            h = mix(h ^ (uint64_t)call->recv_counts[i]) + i;
    return (uint32_t)h;
}

static bool has_lists(tt_op op) {
    return op == TT_OP_ALL_GATHER_V || op == TT_OP_ALL_TO_ALL_V || op == TT_OP_ALL_REDUCE_COALESCED;
}

/* As in the record, where root and tag stand for more. */
static inline uint64_t signature_of(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, int root, uint64_t count,
                                    int tag) {
    if (__builtin_expect(has_lists(op), 0))
        count = (uint32_t)tag;
    if (__builtin_expect(op >= TT_OP_NEW_GROUP, 0))
        count = mix(count) ^ (uint32_t)tag;
    return tt__signature_bits(tt__signature_kind(op, dtype, reduce_op, root), count);
}

static inline int tag_of(const tt_group *group, const tt_call *call) {
    return __builtin_expect(has_lists(call->op), 0) ? (int)hash_of_lists(group, call) : call->tag;
}

/* A part of another call differs where that does, even if the parts are alike. */
static inline uint64_t signature(const tt_work *work) {
    const tt_call *call = &work->call;
    uint64_t bits =
        signature_of(call->op, call->dtype, call->reduce_op, call->root, call->count, tag_of(work->group, call));
    if (__builtin_expect(work->parent != NULL, 0))
        bits ^= mix((uint64_t)work->parent->word << 32 | work->parent->seq) & TT__SIGNATURE_MASK;
    return bits;
}

uint32_t tt__signature(const tt_work *work) { return (uint32_t)(signature(work) >> 32); }

/* What the record has no room for. */
static void keep_lists(tt__recorder *recorder, uint32_t number, const tt_group *group, const tt_call *call) {
    size_t n = (size_t)group->size;
    tt__lists lists = {.first = call->recv_counts, .firsts = n};
    if (call->op == TT_OP_ALL_TO_ALL_V)
        lists = (tt__lists){call->send_counts, call->recv_counts, n, n};
    else if (call->op == TT_OP_ALL_REDUCE_COALESCED)
        lists.firsts = call->buffers;
    else if (call->op == TT_OP_NEW_GROUP) /* its ranks */
        lists.firsts = call->recv_counts ? (size_t)call->count : 0;
    tt__record_keep_lists(recorder, number, &lists);
}

tt__record *tt__record_call(tt_group *group, const tt_call *call, uint32_t seq, int flags) {
    tt__recorder *recorder = &tt__world_control(group->world)->recorder;
    tt__record *record = tt__record_begin(recorder, call->file, call->line);
    if (__builtin_expect(has_lists(call->op) || call->op == TT_OP_NEW_GROUP, 0))
        keep_lists(recorder, atomic_load_explicit(&record->number, memory_order_relaxed), group, call);
    record->seq = seq;
    record->group = group->id;
    record->op = (uint8_t)call->op;
    record->dtype = (uint8_t)call->dtype;
    record->reduce_op = (uint8_t)call->reduce_op;
    record->flags = (uint8_t)flags;
    record->root = call->root;
    record->count = call->count;
    record->tag = tag_of(group, call);
    record->algorithm = 0;
    return record;
}

void tt__publish(tt_work *work, const tt__offer *offer) {
    tt_group *group = work->group;
    uint32_t seq = ++group->seq;
    tt__slot *slot = &group->areas[group->rank]->slots[seq & 1];
    uint64_t word = signature(work) | seq;
    slot->record = work->record_number;
    if (offer->symmetric && tt__in_heap(group->world, offer->symmetric, offer->extent)) {
        word |= TT__SYMMETRIC_BIT;
        slot->offset = (uint64_t)((const unsigned char *)offer->symmetric - group->bases[group->rank]);
    }
    slot->factor = work->call.factor;
    if (offer->bytes)
        memcpy(offer->bytes <= sizeof slot->near ? slot->near : slot->far, offer->payload, offer->bytes);
    work->seq = seq;
    work->word = (uint32_t)(word >> 32) & ~1U;
    atomic_store_explicit(&slot->word, word, memory_order_release);
    group->unrung = true;
}

static uint64_t word_of(const tt_group *group, int r, uint32_t seq) {
    return atomic_load_explicit(&group->areas[r]->slots[seq & 1].word, memory_order_acquire);
}

const void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes) {
    const tt__slot *slot = &group->areas[r]->slots[seq & 1];
    return bytes <= sizeof slot->near ? slot->near : slot->far;
}

bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq) { return word_of(group, r, seq) & TT__SYMMETRIC_BIT; }

void *tt__symmetric(const tt_group *group, int r, uint32_t seq) {
    return group->bases[r] + group->areas[r]->slots[seq & 1].offset;
}

double tt__factor(const tt_group *group, int r, uint32_t seq) { return group->areas[r]->slots[seq & 1].factor; }

/* ---- texts */

/* With what its lists may differ in. */
static void whole_text(const tt__recorder *recorder, const tt__record *record, char *text, size_t size) {
    char lists[192];
    tt__record_text(recorder, record, text, size);
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s", tt__record_lists_text(recorder, record, lists, sizeof lists));
}

static void record_text(const tt_group *group, int r, uint32_t number, char *text, size_t size) {
    const tt__recorder *recorder = &group->world->peers[group->ranks[r]].control->recorder;
    tt__record record;
    if (tt__record_read(recorder, number, &record))
        whole_text(recorder, &record, text, size);
    else
        snprintf(text, size, "a call of long ago");
}

static bool has_record(const tt_group *group, int r, uint32_t seq) {
    tt__record record;
    return tt__record_read(&group->world->peers[group->ranks[r]].control->recorder,
                           group->areas[r]->slots[seq & 1].record, &record) &&
           record.seq == seq && record.group == group->id;
}

/* A word may be told a moment before its record is written. A call on an inner group has none of its own. */
void tt__call_text(const tt_group *group, int r, uint32_t seq, char *text, size_t size) {
    for (int i = 0; i < 20 && !has_record(group, r, seq); i++)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    record_text(group, r, group->areas[r]->slots[seq & 1].record, text, size);
}

void tt__work_text(const tt_work *work, char *text, size_t size) {
    record_text(work->group, work->group->rank, work->record_number, text, size);
}

bool tt__find_call(const tt__world *world, int r, uint32_t group, uint32_t seq, char *text, size_t size,
                   uint32_t *word) {
    const tt__control *control = world->peers[r].control;
    tt__record record;
    for (uint32_t i = 0; control && i < TT__RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&control->recorder.records[i].number, memory_order_relaxed);
        if (!number || !tt__record_read(&control->recorder, number, &record) || record.group != group ||
            record.seq != seq || record.op == TT_OP_SEND || record.op == TT_OP_RECV)
            continue;
        whole_text(&control->recorder, &record, text, size);
        *word = (uint32_t)(signature_of((tt_op)record.op, (tt_dtype)record.dtype, (tt_reduce_op)record.reduce_op,
                                        record.root, record.count, record.tag) >>
                           32);
        return true;
    }
    return false;
}

bool tt__find_p2p(const tt__world *world, int r, uint32_t group, uint32_t number, char *text, size_t size) {
    const tt__control *control = world->peers[r].control;
    tt__record record;
    if (!control || !tt__record_read(&control->recorder, number, &record) || record.group != group ||
        !tt__is_p2p((tt_op)record.op))
        return false;
    tt__record_text(&control->recorder, &record, text, size);
    return true;
}

tt__rankset tt__job_ranks(const tt_group *group, const tt__rankset *set) {
    tt__rankset job = {0};
    for (int r = 0; r < group->size; r++)
        if (tt__rankset_has(set, r))
            tt__rankset_add(&job, group->ranks[r]);
    return job;
}

const char *tt__group_list(const tt_group *group, char *text, size_t size) {
    tt__rankset job = {0};
    for (int r = 0; r < group->size; r++)
        tt__rankset_add(&job, group->ranks[r]);
    return tt__rankset_list(&job, text, size);
}

const char *tt__group_text(const tt_group *group, char *text, size_t size) {
    char list[160];
    if (group->size == group->world->size)
        snprintf(text, size, "the group");
    else
        snprintf(text, size, "the group of ranks %s", tt__group_list(group, list, sizeof list));
    return text;
}

/* ---- disagreements */

/* Give those who have not arrived a moment, so that the text can tell the odd one from the many. */
static uint64_t arrived_after_grace(tt_group *group, uint32_t seq) {
    uint64_t arrived = 0, all = group->size == 64 ? UINT64_MAX : (UINT64_C(1) << group->size) - 1;
    for (int tries = 0; tries < 50 && arrived != all; tries++) {
        if (tries)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        for (int r = 0; r < group->size; r++)
            if ((uint32_t)word_of(group, r, seq) == seq)
                arrived |= UINT64_C(1) << r;
    }
    return arrived;
}

/* The ranks among `arrived` that made the same call as rank r. */
static uint64_t same_call(const tt_group *group, int r, uint32_t seq, uint64_t arrived) {
    uint64_t same = 0, word = word_of(group, r, seq) | TT__SYMMETRIC_BIT;
    for (int i = 0; i < group->size; i++)
        if (arrived >> i & 1 && (word_of(group, i, seq) | TT__SYMMETRIC_BIT) == word)
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
        for (int r = 0; r < group->size; r++) {
            uint64_t same = left >> r & 1 ? same_call(group, r, seq, left) : 0;
            if (same && (!rarest || __builtin_popcountll(same) <= __builtin_popcountll(rarest)))
                rarest = same;
        }
        char ranks[128], call[256];
        tt__rankset job = tt__job_ranks(group, &(tt__rankset){{rarest}});
        tt__rankset_text(&job, ranks, sizeof ranks);
        tt__call_text(group, __builtin_ctzll(rarest), seq, call, sizeof call);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s called %s", sets ? " while " : "", ranks, call);
        left &= ~rarest;
    }
    char name[192];
    return tt__fail(TT_ERR_MISMATCH, "call %u of %s differs: %s. All ranks must make the same calls in the same order.",
                    seq, tt__group_text(group, name, sizeof name), text);
}

bool tt__disagrees(const tt_group *group, uint32_t seq) {
    uint64_t mine = word_of(group, group->rank, seq);
    for (int r = 0; r < group->size; r++) {
        uint64_t word = word_of(group, r, seq);
        if ((uint32_t)word == seq && (word ^ mine) & ~TT__SYMMETRIC_BIT)
            return true;
    }
    return false;
}

tt_status tt__agree(tt_work *work) {
    tt_group *group = work->group;
    uint64_t mine = word_of(group, group->rank, work->seq), differ = 0, all = mine;
    for (int r = 0; r < group->size; r++) {
        uint64_t word = word_of(group, r, work->seq);
        differ |= word ^ mine;
        all &= word;
    }
    work->symmetric = all & TT__SYMMETRIC_BIT;
    if (!(differ & ~TT__SYMMETRIC_BIT))
        return TT_OK;
    return work->parent ? tt__fail_differing(group->parent, work->parent->seq) : fail_mismatch(group, work->seq);
}
