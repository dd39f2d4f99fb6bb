/* Calls and references in the flight recorder: rpc_state.h. */
#include "rpc/rpc_state.h"

#include <stdio.h>
#include <stdlib.h>

/* Indices of functions in the recorder: no registered one; tt_rref_get(); the first registered one. */
enum { UNKNOWN, FETCH, FIRST };

static int recorded_index(int number) { return number + FIRST < TT__RPC_FUNCTIONS ? number + FIRST : UNKNOWN; }

void tt__recording_begin(tt_rpc *rpc) {
    if (!rpc->network->recorder) {
        tt__own_recorder_open(&rpc->own_recorder, rpc->id);
        rpc->network->recorder = rpc->own_recorder.recorder;
    }
    tt__recorder *recorder = rpc->network->recorder;
    if (!recorder)
        return;
    tt__rpc_record_name(recorder, UNKNOWN, "?");
    tt__rpc_record_name(recorder, FETCH, "tt_rref_get");
    for (int i = 0; i < tt__function_count(); i++)
        if (recorded_index(i) != UNKNOWN)
            tt__rpc_record_name(recorder, recorded_index(i), tt__function_at(i)->name);
    rpc->made = calloc((size_t)tt__function_count() + 1, sizeof *rpc->made); /* without memory they are not counted */
    tt__recording_show(rpc);
}

void tt__recording_end(tt_rpc *rpc) {
    if (rpc->network->recorder)
        tt__rpc_publish(rpc->network->recorder, &(tt__rpc_shown){.id = -1});
}

uint32_t tt__recording_call(tt_rpc *rpc, tt__rpc_packet_kind kind, const tt__rpc_function *known, int to,
                            const tt__rpc_encoder *e) {
    if (!rpc->network->recorder)
        return 0;
    int function = kind == TT__RPC_FETCH ? FETCH : known ? recorded_index(tt__function_number(known)) : UNKNOWN;
    uint64_t bytes = e->size;
    for (uint32_t i = 0; i < e->part_count; i++)
        bytes += e->parts[i].bytes;
    return tt__rpc_record_begin(rpc->network->recorder, (uint8_t)function, to, bytes);
}

void tt__recording_done(tt_rpc *rpc, uint32_t record, tt_status status, bool later) {
    if (record)
        tt__rpc_record_done(rpc->network->recorder, record, status ? TT__CALL_FAILED : TT__CALL_DONE,
                            later || status ? 0 : atomic_load_explicit(&rpc->came, memory_order_relaxed));
}

/* Insert a function into the list of those that made the most values, in falling order. */
static void add_maker(tt__rpc_made *makers, tt__rpc_made one) {
    for (int i = 0; i < TT__RPC_MAKERS; i++)
        if (one.count > makers[i].count) {
            tt__rpc_made less = makers[i];
            makers[i] = one;
            one = less;
        }
}

void tt__recording_show(tt_rpc *rpc) {
    const tt__rpc_counters *now = &rpc->counters;
    if (!rpc->network->recorder)
        return;
    tt__rpc_shown shown = {.id = rpc->id,
                           .threads = rpc->pool_threads,
                           .idle = rpc->pool_idle,
                           .calls = now->calls,
                           .calls_made = now->calls_made,
                           .serving = now->serving,
                           .served = now->served,
                           .owned = now->owned,
                           .held = now->held,
                           .bytes = (int64_t)now->bytes};
    snprintf(shown.name, sizeof shown.name, "%s", rpc->name);
    for (const tt__rpc_peer *peer = rpc->waiting_peers; peer; peer = peer->next_waiting)
        shown.waiting += (int64_t)peer->waiting_bytes;
    for (int i = 0; rpc->made && i < tt__function_count(); i++)
        add_maker(shown.makers, (tt__rpc_made){.count = rpc->made[i], .function = recorded_index(i)});
    tt__rpc_publish(rpc->network->recorder, &shown);
}
