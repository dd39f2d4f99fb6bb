#include "rpc/functions/serving.h"

#include "base/error.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/served_call.h"
#include "rpc/references/references.h"
#include "rpc/threads/waiting.h"
#include "rpc/values/landing_memory.h"
#include "rpc/values/packets_memory.h"
#include "rpc/values/rpc_value.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of what one worker may take of this worker's memory. */
enum {
    UNSENT_MAX = 32 << 20, /* bytes of replies that it has not taken; beyond that, its calls are not begun */
    CALLS_MAX = 1 << 17    /* its calls without a reply; further ones are refused */
};

/* ---- running; without the lock */

/* What function_ends_thread() needs if a function calls pthread_exit(). */
typedef struct running_function {
    tt_rpc_call *call;
    const tt__rpc_tensor_hooks *hooks;
    uint64_t before;
} running_function;

static void function_ends_thread(void *arg) {
    const running_function *running = arg;
    if (running->hooks)
        running->hooks->leave(running->before);
    tt__served_finish(running->call, tt__fail(TT_ERR_STATE, "the function ended its thread: expected it to return"));
}

static tt_status call_function(tt_rpc_call *call) {
    const tt__rpc_function *function = call->function;
    uint64_t context = call->view.header.context, errors = tt__error_count();
    running_function running = {.call = call, .hooks = tt__rpc_tensor_hooks_of()};
    tt_status status = TT_OK;
    if (running.hooks) {
        running.before = running.hooks->current();
        running.hooks->enter(call->rpc, context);
    }
    tt_rpc_call *outer = tt__rpc_set_call(call);
    pthread_cleanup_push(function_ends_thread, &running);
    status = function->fn(call);
    pthread_cleanup_pop(0);
    tt__rpc_set_call(outer);
    if (running.hooks)
        running.hooks->leave(running.before);
    if (status && tt__error_count() == errors)
        return tt__fail(status, "the function failed: %s", tt_status_text(status));
    if (status)
        return status;
    return call->returned || call->later
               ? TT_OK
               : tt__signature_check_result(&function->signature, function->name, function->text, &call->result);
}

static void run_function(tt_rpc_call *call) {
    tt_status status = call_function(call);
    if (!status && call->later)
        tt__served_follow(call, call->later);
    else
        tt__served_finish(call, status);
}

/* Reply to a FETCH when the value has been made. */
static void run_fetch(tt_rpc_call *call) { tt__served_follow(call, call->refs[0]->value); }

/* ---- arguments; without the lock */

static tt_status read_args(tt_rpc_call *call, const uint8_t *at, size_t bytes) {
    tt__rpc_decoder decoder = {
        .view = &call->view, .at = at, .end = at + bytes, .refs = call->refs, .landings = call->landings};
    tt_status status = tt__decode_value(&decoder, &call->args);
    call->tensors = decoder.tensors;
    call->tensor_count = decoder.tensor_count;
    call->args_read = true;
    tt__value_lend(&call->args);
    if (!status && call->args.kind != TT_RPC_LIST)
        return tt__fail(TT_ERR_PROTOCOL, "expected the arguments of a call to be a list, got another kind of value");
    return status;
}

static void go_on_call(tt_rpc *rpc, tt__rpc_due *due);

/* All parts have been received: queue the call, so that a thread goes on with it. */
static void parts_have_come(tt_rpc *rpc, tt__rpc_due *due) {
    due->run = go_on_call;
    tt__rpc_lock(rpc);
    tt__rpc_queue_add(rpc, due);
    tt__rpc_notice(rpc);
    tt__rpc_unlock(rpc);
}

/* Return the bytes of all parts of a call, at most SIZE_MAX. */
static size_t all_part_bytes(const tt_rpc_call *call) {
    size_t all = 0;
    for (uint32_t i = 0; i < call->view.header.parts; i++) {
        uint64_t bytes = tt__packet_part_bytes(&call->view, i);
        all = bytes > SIZE_MAX - all ? SIZE_MAX : all + (size_t)bytes;
    }
    return all;
}

/* Admit a call if there is room for its parts, which are received next. Parts of calls that have not begun take at most
 * `max_memory` in all, unless one call is alone. The parts of one worker take at most as much as is left free, so that
 * a worker whose parts don't come does not stop the others. The lock is held. */
static bool admit_call(tt_rpc *rpc, tt_rpc_call *call) {
    tt__rpc_peer *peer = rpc->peers[call->from];
    size_t bytes = all_part_bytes(call), half = rpc->max_memory / 2 + 1, counted = bytes < half ? bytes : half;
    size_t left = rpc->max_memory > rpc->landing_bytes ? rpc->max_memory - rpc->landing_bytes : 0;
    if (rpc->landing_bytes && (bytes > left || peer->landing + counted > left))
        return false;
    rpc->landing_bytes += counted;
    rpc->counters.bytes += counted;
    peer->landing += counted;
    call->landing = counted;
    return call->admitted = true;
}

static bool takes_replies(const tt_rpc *rpc, int id, size_t at_most) {
    return id == rpc->id || tt__unsent_bytes(rpc->network->messages, id) <= at_most;
}

static bool takes_replies_again(tt_rpc *rpc, tt_rpc_call *call) {
    return takes_replies(rpc, call->from, UNSENT_MAX / 2);
}

static bool has_thread(tt_rpc *rpc, tt_rpc_call *call) { return tt__rpc_pool_spares(rpc, rpc->peers[call->from]); }

/* Queue the calls of a list that may go on now, or whose caller is lost. */
static void let_calls_go(tt_rpc *rpc, tt__rpc_due_list *list, bool (*may_go)(tt_rpc *rpc, tt_rpc_call *call)) {
    tt__rpc_due_list all = {list->first, list->first ? list->end : &all.first};
    *list = (tt__rpc_due_list){NULL, &list->first};
    for (tt__rpc_due *due; (due = tt__rpc_list_take(&all));) {
        tt_rpc_call *call = (tt_rpc_call *)(void *)due;
        if (call->lost || may_go(rpc, call))
            tt__rpc_queue_add(rpc, due);
        else
            tt__rpc_list_add(list, due);
    }
}

void tt__serve_look(tt_rpc *rpc) {
    let_calls_go(rpc, &rpc->held, admit_call);
    let_calls_go(rpc, &rpc->aside, has_thread);
    let_calls_go(rpc, &rpc->slow, takes_replies_again);
}

/* Put a call into rpc->slow, rpc->aside or rpc->held if its caller has not taken earlier replies, or there is no thread
 * for it, or no memory for its parts. Returns whether it did. */
static bool is_to_wait(tt_rpc *rpc, tt_rpc_call *call) {
    tt__rpc_due_list *list = NULL;
    tt__rpc_lock(rpc);
    bool may = call->lost || call->refused, queued = call->stage == CALL_QUEUED;
    if (queued && !call->lost && !takes_replies(rpc, call->from, UNSENT_MAX))
        list = &rpc->slow;
    else if (!may && !has_thread(rpc, call))
        list = &rpc->aside;
    else if (!may && queued && call->view.header.parts && !call->admitted && !admit_call(rpc, call))
        list = &rpc->held;
    if (list)
        tt__rpc_list_add(list, &call->due);
    else
        tt__served_on_thread(rpc, call, true);
    tt__rpc_unlock(rpc);
    return list;
}

/* The lock is held. */
static tt_status begin_call_parts(tt_rpc *rpc, tt_rpc_call *call, uint32_t from, uint32_t end) {
    if (call->lost || call->forgotten)
        return tt__fail(TT_ERR_PEER, "the caller is lost, or has given the call up");
    TT__TRY(tt__transfer_make(&call->transfer, end - from));
    for (uint32_t i = from; i < end; i++) {
        tt__transfer_part(&call->transfer, i - from, call->from, call->view.header.id, false, call->landings[i].data,
                          (size_t)call->landings[i].bytes);
        call->transfer.messages[i - from].key.step = 2 * i;
    }
    call->stage = CALL_LANDS;
    tt__served_on_thread(rpc, call, false);
    call->transfer.due = &call->due;
    call->due.run = parts_have_come;
    tt__transfer_begin(rpc, &call->transfer, true);
    tt__transfers_look(rpc);
    tt__rpc_notice(rpc);
    return TT_OK;
}

static tt_status receive_call_parts(tt_rpc_call *call, uint32_t from, uint32_t end) {
    tt__rpc_lock(call->rpc);
    tt_status status = begin_call_parts(call->rpc, call, from, end);
    tt__rpc_unlock(call->rpc);
    return status;
}

/* Check that the value has a place for each of the parts that come with it. */
static tt_status check_landings(const tt_rpc_call *call, uint32_t from, uint32_t end) {
    for (uint32_t i = from; i < end; i++)
        if (!call->landings[i].data && tt__packet_part_bytes(&call->view, i))
            return tt__fail(TT_ERR_PROTOCOL, "another worker sent a part that its value does not have");
    return TT_OK;
}

static tt_status begin_args(tt_rpc_call *call, bool *waits) {
    const tt__rpc_header *header = &call->view.header;
    if (header->parts && all_part_bytes(call) > tt__rpc_machine_memory())
        return tt__fail(TT_ERR_MEMORY, "the call has %zu bytes, which is more than the memory of worker %s's machine",
                        all_part_bytes(call), call->rpc->name);
    if (header->parts && !(call->landings = calloc(header->parts, sizeof *call->landings)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %d parts of a call", header->parts);
    *waits = header->parts;
    if (header->flags & TT__RPC_VALUE_APART) {
        uint32_t last = header->parts - 1u;
        tt__rpc_landing *landing = &call->landings[last];
        landing->bytes = tt__packet_part_bytes(&call->view, last);
        if (landing->bytes > SIZE_MAX / 2 || !(call->value_apart = tt__landing_take((size_t)landing->bytes)))
            return tt__fail(TT_ERR_MEMORY, "no memory for a value of %llu bytes", (unsigned long long)landing->bytes);
        landing->data = call->value_apart;
        return receive_call_parts(call, last, header->parts);
    }
    TT__TRY(read_args(call, call->view.value, header->value_bytes));
    TT__TRY(check_landings(call, 0, header->parts));
    return header->parts ? receive_call_parts(call, 0, header->parts) : TT_OK;
}

static tt_status call_landed(tt_rpc_call *call, bool *waits) {
    uint32_t parts = call->view.header.parts;
    tt__rpc_lock(call->rpc);
    tt_status landed = tt__transfer_status(&call->transfer);
    tt__transfer_end(call->rpc, &call->transfer);
    tt__rpc_unlock(call->rpc);
    *waits = false;
    if (landed)
        return tt__fail(landed, "the caller did not send all of the arguments");
    if (call->args_read)
        return TT_OK;
    TT__TRY(read_args(call, call->value_apart, (size_t)call->landings[parts - 1].bytes));
    TT__TRY(check_landings(call, 0, parts - 1));
    *waits = parts > 1;
    return parts > 1 ? receive_call_parts(call, 0, parts - 1) : TT_OK;
}

static tt_status check_args(tt_rpc_call *call) {
    const tt__rpc_header *header = &call->view.header;
    call->function = tt__function_find(call->view.name, header->name_bytes);
    if (!call->function)
        return tt__function_missing(call->rpc->name, call->view.name, header->name_bytes);
    return tt__signature_check_args(&call->function->signature, call->function->name, call->function->text,
                                    call->args.list.items, call->args.list.count);
}

static void run_refused(tt_rpc_call *call) {
    tt_status status = tt__fail(call->refused, "%s", (const char *)call->apart);
    free(call->apart);
    call->apart = NULL;
    tt__served_finish(call, status);
}

/* Begin a call that a thread has taken from the queue, or go on with it once its parts have been received. */
static void go_on_call(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    bool waits = false, fetch = call->view.header.kind == TT__RPC_FETCH;
    if (is_to_wait(rpc, call))
        return;
    tt_clear_error(); /* drop the error of the last call in this thread */
    if (call->refused) {
        run_refused(call);
        return;
    }
    tt_status status = call->stage == CALL_QUEUED ? begin_args(call, &waits) : call_landed(call, &waits);
    if (!status && waits)
        return;
    tt__rpc_lock(rpc);
    bool held = call->landing;
    tt__served_uncount(rpc, call);
    call->stage = CALL_RUNS;
    if (held && rpc->held.first) {
        let_calls_go(rpc, &rpc->held, admit_call);
        tt__rpc_notice(rpc);
    }
    tt__rpc_unlock(rpc);
    if (!status)
        status = tt__decoded_finish(rpc, call->from, &call->view.header, call->landings, call->tensors,
                                    call->tensor_count, "call");
    if (!status && !fetch)
        status = check_args(call);
    if (status)
        tt__served_finish(call, status);
    else if (fetch)
        run_fetch(call);
    else
        run_function(call);
}

/* ---- new calls; the lock is held */

static tt_status take_refs(tt_rpc *rpc, tt_rpc_call *call) {
    uint32_t count = call->view.header.refs;
    if (!count)
        return TT_OK;
    call->refs = calloc(count, sizeof *call->refs);
    tt_status status = call->refs ? tt__rrefs_received(rpc, call->from, &call->view, call->refs)
                                  : tt__fail(TT_ERR_MEMORY, "no memory for %u references", count);
    if (status) {
        tt__rrefs_refuse(rpc, call->from, &call->view, call->refs);
        free(call->refs);
        call->refs = NULL;
    }
    return status;
}

static tt_status list_call(tt_rpc *rpc, tt_rpc_call *call) {
    TT__TRY(tt__served_list(rpc, call));
    rpc->counters.served++;
    rpc->counters.bytes += call->counted;
    rpc->peers[call->from]->calls_in++;
    return TT_OK;
}

/* May another call of this worker be served? */
static tt_status may_serve(const tt_rpc *rpc, const tt__rpc_peer *from) {
    if (rpc->ended)
        return tt__fail(TT_ERR_PEER, "worker %s was shut down", rpc->name);
    if (from->calls_in >= CALLS_MAX)
        return tt__fail(TT_ERR_MEMORY,
                        "worker %s has %u calls of this caller that it has not replied to: expected "
                        "fewer at a time",
                        rpc->name, from->calls_in);
    return TT_OK;
}

/* Let the call fail with this thread's last error when a thread takes it. */
static tt_status refuse_call(tt_rpc_call *call, tt_status status) {
    if (!call->refs)
        call->view.header.refs = 0; /* none is held */
    call->refused = status;
    call->apart = (uint8_t *)strdup(tt_last_error());
    return call->apart ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a call");
}

tt_status tt__serve_begin(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view, tt__rpc_packet *packet) {
    tt_rpc_call *call = calloc(1, sizeof *call);
    bool fetch = view->header.kind == TT__RPC_FETCH;
    if (!call) {
        tt__rrefs_refuse(rpc, from->id, view, NULL);
        return tt__fail(TT_ERR_MEMORY, "no memory for a call");
    }
    call->rpc = rpc;
    call->from = from->id;
    call->view = *view;
    call->due.run = go_on_call;
    call->counted = call->window = packet->size;
    tt_status status = fetch && view->header.refs != 1
                           ? tt__fail(TT_ERR_PROTOCOL, "expected a fetch to have one reference, got another number")
                           : TT_OK;
    if (!status)
        status = take_refs(rpc, call);
    bool gone = status == TT_ERR_NOT_FOUND; /* a reference was freed: only this call fails, not the worker */
    if (gone || (!status && (status = may_serve(rpc, from))))
        status = refuse_call(call, status);
    if (!status && fetch && call->refs && !call->refs[0]->value)
        status = tt__fail(TT_ERR_PROTOCOL, "another worker fetched a value that this worker does not own");
    if (!status && view->header.kind == TT__RPC_KEEP &&
        !(call->kept = tt__rref_kept(rpc, from->id, view->header.serial,
                                     tt__function_find(view->name, view->header.name_bytes))))
        status = tt_last_status();
    if (!status)
        status = list_call(rpc, call);
    if (status) {
        for (uint32_t i = 0; call->refs && i < view->header.refs; i++)
            tt__rref_drop(rpc, call->refs[i]);
        if (call->kept)
            tt__rref_drop(rpc, call->kept);
        free(call->refs);
        free(call->apart);
        free(call);
        return status;
    }
    call->packet = packet;
    tt__rpc_queue_add(rpc, &call->due);
    return TT_OK;
}

/* End a call that was given up before it began. */
static void drop_unbegun(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    (void)rpc;
    if (call->kept)
        tt__future_end(call->kept->value, TT_ERR_ABORTED, "the call that was to make the value was given up",
                       tt_rpc_none());
    tt__served_end(call);
}

static bool is_queued(const tt_rpc_call *call) { return call->stage == CALL_QUEUED && call->due.run == go_on_call; }

void tt__serve_forget(tt_rpc *rpc, int from, uint32_t id) {
    tt_rpc_call *call = tt__serve_find(rpc, from, id);
    if (!call)
        return;
    call->forgotten = true; /* a thread may be reading it */
    if (is_queued(call))
        call->due.run = drop_unbegun;
    else if (call->stage == CALL_LANDS || call->stage == CALL_REPLIES)
        tt__transfer_cancel(rpc, &call->transfer, TT_ERR_ABORTED);
}

/* Stop moving the parts of a call, and drop it if it waits for a future: nobody takes its reply. */
static void lose_call(tt_rpc *rpc, tt_rpc_call *call, tt_status status) {
    call->lost = true;
    tt__transfer_cancel(rpc, &call->transfer, status);
    tt__served_drop(rpc, call);
}

/* Lose the calls of worker `id`, or all if it is -1. */
static void lose_calls(tt_rpc *rpc, int id, tt_status status) {
    for (tt_rpc_call *call = rpc->serving, *next; call; call = next) {
        next = call->next;
        if (id < 0 || call->from == id)
            lose_call(rpc, call, status);
    }
    tt__serve_look(rpc);
    tt__rpc_notice(rpc);
}

void tt__serve_lost(tt_rpc *rpc, int id) { lose_calls(rpc, id, TT_ERR_PEER); }

void tt__serve_end(tt_rpc *rpc) { lose_calls(rpc, -1, TT_ERR_ABORTED); }

int tt__serve_list_running(tt_rpc *rpc, char *text, size_t size) {
    int count = 0;
    size_t n = 0;
    *text = '\0';
    for (const tt_rpc_call *call = rpc->serving; call; call = call->next) {
        char who[TT__RPC_WHO_SIZE];
        int bytes;
        const char *function = tt__serve_function(call, &bytes);
        if (!bytes || (call->stage != CALL_RUNS && call->stage != CALL_LATER))
            continue;
        if (n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%.*s() for worker %s", count ? ", " : "", bytes, function,
                                  tt__rpc_who(rpc, call->from, who));
        count++;
    }
    return count;
}

static void refuse_for_threads(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    tt__rpc_lock(rpc);
    tt__fail(TT_ERR_SYSTEM,
             "worker %s can't begin the call: all of its %d threads wait in calls of their own, and no more can be "
             "made%s%s",
             rpc->name, rpc->pool_threads, *rpc->pool_why ? ": " : " (.max_threads)", rpc->pool_why);
    tt__rpc_unlock(rpc);
    tt__served_finish(call, TT_ERR_SYSTEM);
}

void tt__serve_refuse_queue(tt_rpc *rpc) {
    tt__rpc_due *work = tt__rpc_queue_take(rpc);
    if (!work)
        return;
    work->run = refuse_for_threads;
    tt__rpc_due_add(rpc, work);
}

/* ---- for cycles.c */

tt__served tt__serve_state(const tt_rpc_call *call, tt_future **later) {
    *later = NULL;
    switch (call->stage) {
    case CALL_QUEUED:
        return TT__SERVED_QUEUED;
    case CALL_RUNS:
        return TT__SERVED_RUNS;
    case CALL_LATER:
        *later = call->later ? call->later : call->refs ? call->refs[0]->value : NULL;
        return TT__SERVED_LATER;
    default:
        return TT__SERVED_MOVES;
    }
}

tt_rpc_call *tt__serve_next(const tt_rpc *rpc, const tt_rpc_call *call) { return call ? call->next : rpc->serving; }

bool tt__serve_is_aside(const tt_rpc_call *call) {
    return call->stage == CALL_QUEUED && !tt__rpc_pool_spares(call->rpc, call->rpc->peers[call->from]);
}

const char *tt__serve_function(const tt_rpc_call *call, int *bytes) {
    *bytes = call->view.header.name_bytes;
    return call->view.name;
}
