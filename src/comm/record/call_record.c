#include "comm/record/call_record.h"

#include "base/process/waits.h"
#include "comm/op.h"

#include <stdio.h>
#include <string.h>

/* ---- signatures */

/* Mix the bits of a number: a small difference changes many of them. Each step is a bijection of 64 bits. */
static inline uint64_t mix_bits(uint64_t h) {
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ (h >> 32);
}

/* Hash what must be the same on all ranks in calls whose ranks pass different numbers. Recorded as the tag. */
static uint32_t hash_of_lists(const tt_group *group, const tt_call *call) {
    uint64_t h = (uint64_t)call->buffers;
    if (call->op == TT_OP_ALL_GATHER_V || call->op == TT_OP_ALL_REDUCE_COALESCED)
        for (int64_t i = 0; i < (call->op == TT_OP_ALL_GATHER_V ? group->size : call->buffers); i++)
            h = mix_bits(h ^ (uint64_t)call->recv_counts[i]) + (uint64_t)i;
    return (uint32_t)h;
}

/* Compute the signature from a record's fields; root and tag have several meanings there. */
static inline uint64_t call_signature(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, int root, uint64_t count,
                                      int tag) {
    if (__builtin_expect(tt__op_is(op, TT__OP_UNEVEN), 0))
        count = (uint32_t)tag;
    if (__builtin_expect(tt__op_is(op, TT__OP_EXCHANGE), 0))
        count = mix_bits(count) ^ (uint32_t)tag;
    return tt__signature_bits(tt__signature_kind(op, dtype, reduce_op, root), count);
}

static inline int record_tag(const tt_group *group, const tt_call *call) {
    return __builtin_expect(tt__op_is(call->op, TT__OP_UNEVEN), 0) ? (int)hash_of_lists(group, call) : call->tag;
}

/* Return the signature of the work's call. Parts of different calls have different signatures, even if the parts
 * themselves are alike. */
uint64_t tt__signature(const tt_work *work) {
    const tt_call *call = &work->call;
    uint64_t bits =
        call_signature(call->op, call->dtype, call->reduce_op, call->root, call->count, record_tag(work->group, call));
    if (__builtin_expect(work->parent != NULL, 0))
        bits ^= mix_bits((uint64_t)work->parent->word << 32 | work->parent->seq) & TT__SIGNATURE_MASK;
    return bits;
}

/* ---- records */

/* Keep the lists, for which the record has no room. */
static void keep_lists(tt__recorder *recorder, uint32_t number, const tt_group *group, const tt_call *call) {
    size_t n = (size_t)group->size;
    tt__lists lists = {.first = call->recv_counts, .firsts = n};
    if (call->op == TT_OP_ALL_TO_ALL_V)
        lists = (tt__lists){call->send_counts, call->recv_counts, n, n};
    else if (call->op == TT_OP_ALL_REDUCE_COALESCED)
        lists.firsts = (size_t)call->buffers;
    else if (call->op == TT_OP_NEW_GROUP) /* its ranks */
        lists.firsts = call->recv_counts ? (size_t)call->count : 0;
    tt__record_keep_lists(recorder, number, &lists);
}

tt__record_slot *tt__record_call(tt_group *group, const tt_call *call, uint32_t seq, int flags) {
    const tt__call_record kind = {.seq = seq,
                                  .op = (uint8_t)call->op,
                                  .dtype = (uint8_t)call->dtype,
                                  .reduce_op = (uint8_t)call->reduce_op,
                                  .flags = (uint8_t)flags,
                                  .root = call->root,
                                  .tag = record_tag(group, call),
                                  .count = (uint64_t)call->count};
    tt__record_slot *record = tt__record_begin_call(group, call->file, call->line, kind);
    if (__builtin_expect(tt__op_is(call->op, TT__OP_UNEVEN) || call->op == TT_OP_NEW_GROUP, 0))
        keep_lists(&tt__world_control(group->native->world)->recorder,
                   atomic_load_explicit(&record->number, memory_order_relaxed), group, call);
    return record;
}

/* ---- texts */

/* Write the call's text with the values of its lists, in which ranks may differ; after a free, the error that led to
 * it. */
static void whole_text(const tt__control *control, const tt__call_record *record, char *text, size_t size) {
    char lists[192];
    tt__record_text(&control->recorder, record, text, size);
    size_t n = strlen(text);
    if (record->op == TT_OP_FREE && *control->own_failure)
        snprintf(text + n, size - n, TT__AFTER_FAILURE "%.*s", (int)sizeof control->own_failure - 1,
                 control->own_failure);
    else
        snprintf(text + n, size - n, "%s", tt__record_lists_text(&control->recorder, record, lists, sizeof lists));
}

bool tt__is_leaving(const char *text) {
    return !strncmp(text, "free(", 5) && (strstr(text, TT__AFTER_FAILURE) || strstr(text, TT__RELEASES));
}

static void number_text(const tt_group *group, int r, uint32_t number, char *text, size_t size) {
    const tt__control *control = group->native->world->peers[group->ranks[r]].control;
    tt__call_record record;
    if (tt__record_read(&control->recorder, number, &record))
        whole_text(control, &record, text, size);
    else
        snprintf(text, size, "a call of long ago");
}

static bool slot_has_record(const tt_group *group, int r, uint32_t seq) {
    tt__call_record record;
    return tt__record_read(&group->native->world->peers[group->ranks[r]].control->recorder,
                           group->native->areas[r]->slots[seq & 1].record, &record) &&
           record.seq == seq && record.group == group->id;
}

/* Write what rank r called. A word may be published a moment before its record is written. A call on an inner group has
 * no record of its own. */
void tt__call_text(const tt_group *group, int r, uint32_t seq, char *text, size_t size) {
    for (int i = 0; i < 20 && !slot_has_record(group, r, seq); i++)
        tt__sleep_us(500);
    number_text(group, r, group->native->areas[r]->slots[seq & 1].record, text, size);
}

void tt__work_text(const tt_work *work, char *text, size_t size) {
    number_text(work->group, work->group->rank, work->record_number, text, size);
}

bool tt__find_call(const tt__world *world, int r, uint32_t group, uint32_t seq, char *text, size_t size,
                   uint32_t *word) {
    const tt__control *control = world->peers[r].control;
    tt__call_record record;
    for (uint32_t i = 0; control && i < TT__RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&control->recorder.records[i].number, memory_order_relaxed);
        if (!number || !tt__record_read(&control->recorder, number, &record) || record.group != group ||
            record.seq != seq || record.op == TT_OP_SEND || record.op == TT_OP_RECV)
            continue;
        whole_text(control, &record, text, size);
        *word = (uint32_t)(call_signature((tt_op)record.op, (tt_dtype)record.dtype, (tt_reduce_op)record.reduce_op,
                                          record.root, record.count, record.tag) >>
                           32);
        return true;
    }
    return false;
}

bool tt__find_p2p(const tt__world *world, int r, uint32_t group, uint32_t number, char *text, size_t size) {
    const tt__control *control = world->peers[r].control;
    tt__call_record record;
    if (!control || !tt__record_read(&control->recorder, number, &record) || record.group != group ||
        !tt__op_is((tt_op)record.op, TT__OP_P2P))
        return false;
    tt__record_text(&control->recorder, &record, text, size);
    return true;
}
