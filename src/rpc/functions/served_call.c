/* Calls of other workers that are served here: the table that finds them, and what their functions see of them.
 *
 * A caller chooses the numbers of its calls, and may make very many. A secret number decides the place of each in the
 * table, so no caller can choose numbers that all get the same place. */
#include "rpc/functions/served_call.h"

#include "base/error.h"
#include "base/random_bytes.h"
#include "rpc/references/references.h"
#include "rpc/values/rpc_value.h"

#include <stdlib.h>

/* ---- the table */

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

/* Make room for one more call. Without memory for a larger table, the present one, if any, stays. */
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

/* ---- what a function sees: arguments and result */

int64_t tt_rpc_arg_count(const tt_rpc_call *call) { return call ? call->args.list.count : 0; }

const tt_rpc_value *tt_rpc_arg(const tt_rpc_call *call, int64_t index) {
    static const tt_rpc_value none;
    return call && index >= 0 && index < call->args.list.count ? &call->args.list.items[index] : &none;
}

bool tt_rpc_arg_bool(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_BOOL && value->boolean;
}

int64_t tt_rpc_arg_int(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_INT ? value->integer : 0;
}

double tt_rpc_arg_float(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_FLOAT ? value->number : value->kind == TT_RPC_INT ? (double)value->integer : 0;
}

const char *tt_rpc_arg_text(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_TEXT ? value->bytes.data : NULL;
}

tt_rref *tt_rpc_arg_rref(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_RREF ? value->rref : NULL;
}

tt_status tt_rpc_take_arg(tt_rpc_call *call, int64_t index, tt_rpc_value *out) {
    if (!call || !out)
        return tt__fail_argument("tt_rpc_take_arg: expected a call and a place, got NULL");
    if (index < 0 || index >= call->args.list.count)
        return tt__fail(TT_ERR_INVALID, "tt_rpc_take_arg: there is no argument %lld: the call has %lld",
                        (long long)index, (long long)call->args.list.count);
    tt_rpc_value *value = &call->args.list.items[index];
    if (!value->lent && (value->kind == TT_RPC_TEXT || value->kind == TT_RPC_BYTES))
        TT__TRY(tt_rpc_value_copy(out, value)); /* the data is in the packet */
    else if (value->kind == TT_RPC_LIST || value->kind == TT_RPC_MAP)
        TT__TRY(tt_rpc_value_copy(out, value));
    else {
        *out = *value;
        tt__value_take_back(out);
        *value = tt_rpc_none();
        return TT_OK;
    }
    tt__value_free_lent(value);
    return TT_OK;
}

tt_status tt_rpc_return(tt_rpc_call *call, tt_rpc_value value) {
    tt_rpc_value kept = value;
    tt_status status = call ? TT_OK : tt__fail_argument("tt_rpc_return: the call is NULL");
    if (!status && (call->returned || call->later))
        status = tt__fail(TT_ERR_STATE, "tt_rpc_return: the call has a result already");
    if (!status && tt_last_status() && tt__signature_is_null(&call->function->signature.result, &value))
        status = tt_last_status(); /* of the error that made it NULL */
    if (!status)
        status =
            tt__signature_check_result(&call->function->signature, call->function->name, call->function->text, &value);
    if (!status && !value.owned)
        status = tt_rpc_value_copy(&kept, &value);
    if (status) {
        tt_rpc_value_free(&kept);
        return status;
    }
    call->result = kept;
    call->returned = true;
    return TT_OK;
}

tt_status tt_rpc_return_future(tt_rpc_call *call, tt_future *future) {
    if (!call || !future)
        return tt__fail_argument("tt_rpc_return_future: expected a call and a future, got NULL");
    if (call->returned || call->later)
        return tt__fail(TT_ERR_STATE, "tt_rpc_return_future: the call has a result already");
    call->later = tt_future_share(future);
    return TT_OK;
}

int tt_rpc_caller(const tt_rpc_call *call) { return call ? call->from : -1; }

tt_rpc *tt_rpc_of_call(const tt_rpc_call *call) { return call ? call->rpc : NULL; }
