/* The checks before an engine's call. The ranks agree on the call by the control group. In all_to_all_v only two ranks
 * know each count: the engine exchanges the counts by an all_to_all, and an all_reduce tells all ranks the outcome. */
#include "base/error.h"
#include "comm/backend/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "f32 x 512, sum, root 1" */
static void agree_arguments_text(const tt_call *call, char *text, size_t size) {
    tt_op op = call->op;
    size_t n = (size_t)snprintf(text, size, "%s", tt_dtype_name(call->dtype));
    if (tt__op_is(op, TT__OP_UNEVEN))
        snprintf(text + n, size - n, ", uneven");
    else
        n += (size_t)snprintf(text + n, size - n, " x %llu", (unsigned long long)call->count);
    if (tt__op_is(op, TT__OP_REDUCES) && !tt__op_is(op, TT__OP_UNEVEN))
        n += (size_t)snprintf(text + n, size - n, ", %s", tt_reduce_op_name(call->reduce_op));
    if (tt__op_is(op, TT__OP_ROOT))
        snprintf(text + n, size - n, ", root %d", call->root);
}

const char *tt__plugin_call_text(const tt_call *call, char *text, size_t size) {
    const char *slash = call->file ? strrchr(call->file, '/') : NULL, *file = slash ? slash + 1 : call->file;
    char arguments[96] = "", site[16] = "";
    if (tt__op_is(call->op, TT__OP_ELEMENTS))
        agree_arguments_text(call, arguments, sizeof arguments);
    if (call->line)
        snprintf(site, sizeof site, ":%d", call->line);
    snprintf(text, size, "%s(%s) %s %s%s", tt_op_name(call->op), arguments, call->line ? "at" : "in", file ? file : "?",
             site);
    return text;
}

/* Compare the counts that the others send with those that this rank expects. The all_reduce gets the number of a pair
 * that disagrees, or 0. */
static tt_status compare_counts(const tt_group *group, const tt_call *whole, const tt__call_part *part) {
    const int64_t *theirs = part->call.recv;
    int64_t *verdict = part[1].memory;
    for (int r = 0; r < group->size; r++)
        if (theirs[r] != whole->recv_counts[r])
            *verdict = 1 + (int64_t)r * group->size + group->rank;
    return TT_OK;
}

static tt_status compare_verdicts(const tt_group *group, const tt_call *whole, const tt__call_part *part) {
    int64_t pair = *(const int64_t *)part->memory - 1;
    (void)whole;
    if (pair < 0)
        return TT_OK;
    return tt__fail(TT_ERR_MISMATCH,
                    "all_to_all_v: rank %d sends another number of elements to rank %d than that one expects of it",
                    group->ranks[pair / group->size], group->ranks[pair % group->size]);
}

static tt_status agree_ask(tt__call_part *part, tt_op op, tt_dtype dtype, size_t count, size_t own, size_t all,
                           const tt_call *call) {
    unsigned char *memory = calloc(1, own + all);
    if (!memory)
        return tt__fail(TT_ERR_MEMORY, "no memory to compare the ranks' calls");
    *part = (tt__call_part){.call = {.op = op,
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

tt_status tt__plugin_checks(tt__call_part *parts, size_t *n, const tt_group *group, const tt_call *call) {
    const tt__plugin *plugin = tt__plugin_of(group);
    size_t size = (size_t)group->size;
    if (!plugin->control)
        return TT_OK;
    tt__call_part *part = &parts[(*n)++];
    *part = (tt__call_part){.call = *call, .agrees = true, .source = -1};
    if (call->op != TT_OP_ALL_TO_ALL_V || !plugin->table->begin[TT_OP_ALL_TO_ALL] || !tt__plugin_takes_host(plugin))
        return TT_OK;
    part = &parts[(*n)++];
    TT__TRY(agree_ask(part, TT_OP_ALL_TO_ALL, TT_I64, 1, size * 8, size * 8, call));
    for (size_t r = 0; r < size; r++)
        ((int64_t *)part->memory)[r] = call->send_counts[r];
    part->check = compare_counts;
    part = &parts[(*n)++];
    TT__TRY(agree_ask(part, TT_OP_ALL_REDUCE, TT_I64, 1, 8, 0, call));
    part->call.recv = part->memory;
    part->call.reduce_op = TT_MAX;
    part->check = compare_verdicts;
    return TT_OK;
}
