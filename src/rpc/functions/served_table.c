/* A caller chooses the numbers of its calls, and may make very many. A secret number decides the place of each in the
 * table, so no caller can choose numbers that all get the same place. */
#include "rpc/functions/served_table.h"

#include "base/error.h"
#include "base/random_bytes.h"
#include "net/secure/secret.h"
#include "rpc/references/references.h"

#include <stdlib.h>

enum { FIRST_ROOM = 64 };

uint64_t tt__serve_key(const tt_rpc_call *call) { return (uint64_t)(call->from + 1) << 32 | call->view.header.id; }

static uint64_t value_key(const tt_future *value) { return (uint64_t)(uintptr_t)value; }

static tt_rpc_call **served_place(const tt__served_table *table, int which, uint64_t key) {
    uint32_t mixed = (uint32_t)(key * table->secret >> 32);
    return &table->places[which][mixed & (table->room - 1)];
}

static void put_call(const tt__served_table *table, tt_rpc_call *call, int which, uint64_t key) {
    tt_rpc_call **place = served_place(table, which, key);
    tt__served_place *in = &call->in_table[which];
    *in = (tt__served_place){.next = *place, .at = place};
    if (in->next)
        in->next->in_table[which].at = &in->next;
    *place = call;
}

static void put_both(const tt__served_table *table, tt_rpc_call *call) {
    put_call(table, call, TT__SERVED_BY_NUMBER, tt__serve_key(call));
    if (call->kept)
        put_call(table, call, TT__SERVED_BY_VALUE, value_key(call->kept->value));
}

static void take_call(tt_rpc_call *call, int which) {
    tt__served_place *in = &call->in_table[which];
    if (!in->at)
        return;
    *in->at = in->next;
    if (in->next)
        in->next->in_table[which].at = in->at;
    *in = (tt__served_place){0};
}

/* Without memory for a larger table it stays as it is, if there is one. */
static tt_status served_room(tt_rpc *rpc) {
    tt__served_table *table = &rpc->served;
    uint32_t room = table->room ? 2 * table->room : FIRST_ROOM;
    if (table->room && rpc->counters.serving < table->room)
        return TT_OK;
    if (!table->room)
        TT__TRY(tt__random_bytes(&table->secret, sizeof table->secret));
    tt_rpc_call **both = calloc(2 * (size_t)room, sizeof *both);
    if (!both)
        return table->room ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for calls of other workers");
    table->secret |= 1;
    free(table->places[0]);
    table->places[0] = both;
    table->places[1] = both + room;
    table->room = room;
    for (tt_rpc_call *call = rpc->serving; call; call = call->next)
        put_both(table, call);
    return TT_OK;
}

tt_status tt__served_list(tt_rpc *rpc, tt_rpc_call *call) {
    TT__TRY(served_room(rpc));
    put_both(&rpc->served, call);
    call->next = rpc->serving;
    if (call->next)
        call->next->previous = call;
    rpc->serving = call;
    rpc->counters.serving++;
    return TT_OK;
}

void tt__served_unlist(tt_rpc *rpc, tt_rpc_call *call) {
    take_call(call, TT__SERVED_BY_NUMBER);
    take_call(call, TT__SERVED_BY_VALUE);
    if (call->previous)
        call->previous->next = call->next;
    else
        rpc->serving = call->next;
    if (call->next)
        call->next->previous = call->previous;
    rpc->counters.serving--;
}

void tt__served_table_free(tt_rpc *rpc) { free(rpc->served.places[0]); }

tt_rpc_call *tt__serve_find(const tt_rpc *rpc, int from, uint32_t id) {
    uint64_t key = (uint64_t)(from + 1) << 32 | id;
    tt_rpc_call *call = rpc->served.room ? *served_place(&rpc->served, TT__SERVED_BY_NUMBER, key) : NULL;
    while (call && tt__serve_key(call) != key)
        call = call->in_table[TT__SERVED_BY_NUMBER].next;
    return call;
}

tt_rpc_call *tt__serve_maker(const tt_rpc *rpc, const tt_future *value) {
    tt_rpc_call *call = rpc->served.room ? *served_place(&rpc->served, TT__SERVED_BY_VALUE, value_key(value)) : NULL;
    while (call && call->kept->value != value)
        call = call->in_table[TT__SERVED_BY_VALUE].next;
    return call;
}
