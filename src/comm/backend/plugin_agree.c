/* Do all ranks make the same call? Engines don't ask: gloo ends the process of a rank that gets more than it expects, MPICH may hand out wrong sums.
 *
 * Before a collective the ranks gather a record of each one's call, 64 bytes, by the engine's own all_gather, and compare. That is a second small
 * collective a call, which TT_BACKEND_CHECK=0 (on all ranks) saves. A call that is missing is seen by its timeout only. */
#include "base/error.h"
#include "comm/backend/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    uint8_t op, dtype, reduce_op, unused;
    int32_t root;
    uint64_t count;
    uint64_t lists; /* hash of the counts that all ranks must pass alike */
    int32_t line;
    char file[36];
} record;
_Static_assert(sizeof(record) == 64, "one cache line");

/* What must be the same on all ranks comes first. */
enum { COMPARED = offsetof(record, line) };

static uint64_t hash_counts(const size_t *counts, size_t n) {
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (counts[i] + 1)) * UINT64_C(0x9e3779b97f4a7c15);
    return hash;
}

static record record_of(const tt_group *group, const tt_call *call) {
    const char *slash = call->file ? strrchr(call->file, '/') : NULL, *file = slash ? slash + 1 : call->file;
    record r = {.op = (uint8_t)call->op, .root = call->root, .line = call->line};
    if (call->op != TT_OP_BARRIER)
        r.dtype = (uint8_t)call->dtype;
    if (call->op == TT_OP_ALL_REDUCE_COALESCED || call->op == TT_OP_ALL_REDUCE || call->op == TT_OP_REDUCE ||
        call->op == TT_OP_REDUCE_SCATTER)
        r.reduce_op = (uint8_t)call->reduce_op;
    if (call->op == TT_OP_ALL_REDUCE_COALESCED)
        r.lists = hash_counts(call->recv_counts, call->buffers);
    else if (call->op == TT_OP_ALL_GATHER_V)
        r.lists = hash_counts(call->recv_counts, (size_t)group->size);
    else if (call->op != TT_OP_ALL_TO_ALL_V)
        r.count = call->count;
    snprintf(r.file, sizeof r.file, "%s", file ? file : "?");
    return r;
}

static const char *record_text(const record *r, char *text, size_t size) {
    char arguments[96] = "", site[16] = "", root[32] = "";
    unsigned long long count = r->count;
    tt_dtype dtype = (tt_dtype)r->dtype;
    tt_op op = (tt_op)r->op;
    if (op == TT_OP_REDUCE || op == TT_OP_BROADCAST || op == TT_OP_GATHER || op == TT_OP_SCATTER)
        snprintf(root, sizeof root, ", root %d", r->root);
    if (op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE || op == TT_OP_REDUCE_SCATTER)
        snprintf(arguments, sizeof arguments, "%s x %llu, %s%s", tt_dtype_name(dtype), count,
                 tt_reduce_op_name((tt_reduce_op)r->reduce_op), root);
    else if (op == TT_OP_ALL_GATHER_V || op == TT_OP_ALL_TO_ALL_V || op == TT_OP_ALL_REDUCE_COALESCED)
        snprintf(arguments, sizeof arguments, "%s, uneven", tt_dtype_name(dtype));
    else if (op != TT_OP_BARRIER)
        snprintf(arguments, sizeof arguments, "%s x %llu%s", tt_dtype_name(dtype), count, root);
    if (r->line)
        snprintf(site, sizeof site, ":%d", r->line);
    snprintf(text, size, "%s(%s) %s %s%s", tt_op_name(op), arguments, r->line ? "at" : "in", r->file, site);
    return text;
}

const char *tt__plugin_call_text(const tt_call *call, char *text, size_t size) {
    record r = record_of(&(tt_group){0}, call);
    r.count = call->count;
    return record_text(&r, text, size);
}

/* "ranks 0, 2 called B": those whose record is as `like`; n bytes of text are there already. */
static size_t add_callers(const tt_group *group, const record *all, const record *like, char *text, size_t size,
                          size_t n) {
    char call[160];
    const char *comma = n ? " while rank " : "rank ";
    for (int r = 0; r < group->size && n < size; r++)
        if (!memcmp(&all[r], like, COMPARED)) {
            n += (size_t)snprintf(text + n, size - n, "%s%d", comma, group->ranks[r]);
            comma = ", ";
        }
    if (n < size)
        n += (size_t)snprintf(text + n, size - n, " called %s", record_text(like, call, sizeof call));
    return n;
}

static int count_alike(const tt_group *group, const record *all, const record *like) {
    int n = 0;
    for (int r = 0; r < group->size; r++)
        n += !memcmp(&all[r], like, COMPARED);
    return n;
}

/* The rarer of two calls is named first. */
static tt_status compare_records(const tt_group *group, const tt_call *whole, const tt__part *part) {
    const record *all = part->call.recv;
    char text[1024];
    int other = 1;
    (void)whole;
    while (other < group->size && !memcmp(&all[0], &all[other], COMPARED))
        other++;
    if (other == group->size)
        return TT_OK;
    bool first_is_rare = count_alike(group, all, &all[0]) < count_alike(group, all, &all[other]);
    size_t n = add_callers(group, all, first_is_rare ? &all[0] : &all[other], text, sizeof text, 0);
    add_callers(group, all, first_is_rare ? &all[other] : &all[0], text, sizeof text, n);
    return tt__fail(TT_ERR_MISMATCH, "%s. All ranks must make the same calls in the same order", text);
}

/* What the others will send, against what this rank expects of them: a pair that disagrees, or 0, for all to know. */
static tt_status compare_counts(const tt_group *group, const tt_call *whole, const tt__part *part) {
    const uint64_t *theirs = part->call.recv;
    int64_t *verdict = part[1].memory;
    for (int r = 0; r < group->size; r++)
        if (theirs[r] != whole->recv_counts[r])
            *verdict = 1 + (int64_t)r * group->size + group->rank;
    return TT_OK;
}

static tt_status compare_verdicts(const tt_group *group, const tt_call *whole, const tt__part *part) {
    int64_t pair = *(const int64_t *)part->memory - 1;
    (void)whole;
    if (pair < 0)
        return TT_OK;
    return tt__fail(TT_ERR_MISMATCH,
                    "all_to_all_v: rank %d sends another number of elements to rank %d than that one expects of it",
                    group->ranks[pair / group->size], group->ranks[pair % group->size]);
}

static tt_status ask(tt__part *part, tt_op op, tt_dtype dtype, size_t count, size_t own, size_t all,
                     const tt_call *call) {
    unsigned char *memory = calloc(1, own + all);
    if (!memory)
        return tt__fail(TT_ERR_MEMORY, "no memory to compare the ranks' calls");
    *part = (tt__part){.call = {.op = op,
                                .dtype = dtype,
                                .count = count,
                                .send = memory,
                                .recv = memory + own,
                                .timeout_ms = call->timeout_ms,
                                .file = call->file,
                                .line = call->line},
                       .source = -1,
                       .memory = memory};
    return TT_OK;
}

tt_status tt__plugin_checks(tt__part *parts, size_t *n, const tt_group *group, const tt_call *call) {
    const tt__plugin *plugin = tt__plugin_of(group);
    size_t size = (size_t)group->size;
    if (plugin->unchecked || size == 1 || !plugin->table->begin[TT_OP_ALL_GATHER])
        return TT_OK;
    tt__part *part = &parts[(*n)++];
    TT__TRY(ask(part, TT_OP_ALL_GATHER, TT_U8, sizeof(record), sizeof(record), size * sizeof(record), call));
    record mine = record_of(group, call);
    memcpy(part->memory, &mine, sizeof mine);
    part->check = compare_records;
    if (call->op != TT_OP_ALL_TO_ALL_V || !plugin->table->begin[TT_OP_ALL_TO_ALL])
        return TT_OK;
    part = &parts[(*n)++];
    TT__TRY(ask(part, TT_OP_ALL_TO_ALL, TT_I64, 1, size * 8, size * 8, call));
    for (size_t r = 0; r < size; r++)
        ((uint64_t *)part->memory)[r] = call->send_counts[r];
    part->check = compare_counts;
    part = &parts[(*n)++];
    TT__TRY(ask(part, TT_OP_ALL_REDUCE, TT_I64, 1, 8, 0, call));
    part->call.recv = part->memory;
    part->call.reduce_op = TT_MAX;
    part->check = compare_verdicts;
    return TT_OK;
}
