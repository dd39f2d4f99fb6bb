/* Calls to workers, and what a worker has under way, for observers of the job. */
#include "base/machine/clock.h"
#include "base/text/plain_text.h"
#include "comm/record/recorder.h"
#include "comm/record/seqlock.h"

#include <stdio.h>
#include <string.h>

enum { WINDOW_NS = 1000000000 };

void tt__rpc_record_name(tt__recorder *recorder, int function, const char *name) {
    if (function >= 0 && function < TT__RPC_FUNCTIONS)
        snprintf(recorder->rpc_functions[function], TT__RPC_FUNCTION_SIZE, "%s", name);
}

/* From when rates are counted: the last publication that is a window ago, and so at most two. */
static void move_base(tt__rpc_shown *next, const tt__rpc_shown *before) {
    next->base_made = before->base_made;
    next->base_served = before->base_served;
    next->base_ns = before->base_ns;
    if (before->base_ns && next->at_ns - before->base_ns < 2 * (int64_t)WINDOW_NS)
        return;
    next->base_made = before->at_ns ? before->calls_made : next->calls_made;
    next->base_served = before->at_ns ? before->served : next->served;
    next->base_ns = before->at_ns ? before->at_ns : next->at_ns;
}

void tt__rpc_publish(tt__recorder *recorder, const tt__rpc_shown *now) {
    tt__rpc_shown *shown = &recorder->rpc, next = *now;
    next.at_ns = tt__now_ns();
    move_base(&next, shown);
    uint32_t version = tt__seqlock_begin(&shown->version);
    const size_t from = offsetof(tt__rpc_shown, id);
    memcpy((char *)shown + from, (const char *)&next + from, sizeof next - from);
    tt__seqlock_end(&shown->version, version);
}

/* ---- reading */

bool tt__rpc_record_read(const tt__recorder *recorder, uint32_t number, tt__rpc_record *copy) {
    const tt__rpc_slot *slot = &recorder->rpc_records[(number - 1) % TT__RPC_RECORDS];
    uint16_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (!number || state == TT__CALL_NONE || state > TT__CALL_FAILED || TT__RECORD_GET(slot, number) != number)
        return false;
    *copy = (tt__rpc_record){.number = number,
                             .to = TT__RECORD_GET(slot, to),
                             .bytes = TT__RECORD_GET(slot, bytes),
                             .begin = TT__RECORD_GET(slot, begin),
                             .end = TT__RECORD_GET(slot, end),
                             .function = TT__RECORD_GET(slot, function),
                             .state = state};
    atomic_thread_fence(memory_order_acquire);
    return TT__RECORD_GET(slot, number) == number;
}

void tt__rpc_record_put(tt__recorder *recorder, const tt__rpc_record *record) {
    tt__rpc_slot *slot = &recorder->rpc_records[(record->number - 1) % TT__RPC_RECORDS];
    TT__RECORD_SET(slot, number, record->number);
    TT__RECORD_SET(slot, to, record->to);
    TT__RECORD_SET(slot, bytes, record->bytes);
    TT__RECORD_SET(slot, begin, record->begin);
    TT__RECORD_SET(slot, end, record->end);
    TT__RECORD_SET(slot, function, record->function);
    TT__RECORD_SET(slot, state, record->state);
}

bool tt__rpc_shown_read(const tt__recorder *recorder, tt__rpc_shown *copy) {
    bool read = tt__seqlock_read(&recorder->rpc.version, (void *)copy, (const void *)&recorder->rpc, sizeof *copy) &&
                atomic_load_explicit(&copy->version, memory_order_relaxed) != 0 && copy->id >= 0;
    copy->name[sizeof copy->name - 1] = '\0';
    tt__make_plain_name(copy->name);
    copy->at_ns = tt__ns_checked(copy->at_ns);
    copy->base_ns = tt__ns_checked(copy->base_ns);
    for (int i = 0; i < TT__RPC_MAKERS; i++)
        if (copy->makers[i].function < 0 || copy->makers[i].function >= TT__RPC_FUNCTIONS)
            copy->makers[i].function = 0;
    return read;
}

void tt__rpc_shown_rates(const tt__rpc_shown *shown, double *made, double *served) {
    double s = (double)(shown->at_ns - shown->base_ns) / 1e9;
    *made = *served = 0;
    if (s <= 0)
        return;
    *made = ((double)shown->calls_made - (double)shown->base_made) / s;
    *served = ((double)shown->served - (double)shown->base_served) / s;
}
