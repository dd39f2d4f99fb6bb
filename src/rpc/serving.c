#include "rpc/serving.h"

#include "base/error.h"
#include "rpc/packets_memory.h"
#include "rpc/peers.h"
#include "rpc/pool_crew.h"
#include "rpc/references.h"
#include "rpc/sending.h"
#include "rpc/waiting.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A worker that does not take its replies, or makes calls that are long in coming, gets so far. */
enum {
    UNSENT_MAX = 32 << 20, /* bytes for it that wait to be written, beyond which its calls are not begun */
    CALLS_MAX = 1 << 17    /* calls of it that were not replied to; what is more is refused */
};

/* How far a call is. */
typedef enum call_stage {
    CALL_QUEUED, /* to be read */
    CALL_LANDS,  /* its parts come */
    CALL_RUNS,
    CALL_LATER,  /* the function has returned, and replies by a future */
    CALL_REPLIES /* the reply's parts go out */
} call_stage;

/* A call that a future will end. Who takes the link has the call: the future's callback, or who drops the call. */
typedef struct later_link {
    _Atomic bool taken;
    tt_rpc_call *call;
} later_link;

struct tt_rpc_call {
    tt__rpc_due due;
    struct tt_rpc_call *next, *previous; /* in rpc->serving */
    tt_rpc *rpc;
    int from;
    call_stage stage;
    bool lost;         /* the caller takes no reply */
    bool admitted;     /* its parts may come */
    tt_status refused; /* it is not to be begun; `apart` says why */
    size_t counted;    /* bytes in rpc->counters.bytes, */
    size_t landing;    /* and in rpc->landing_bytes */
    size_t window;     /* that it takes of the caller's window */
    tt__rpc_packet *packet;
    tt__rpc_packet_view view;
    const tt__rpc_function *function; /* NULL: a fetch */
    tt_rref **refs;
    tt_rref *kept;     /* of KEEP: where the result goes; a share */
    tt_rpc_value args; /* a list */
    bool args_read;
    tt__rpc_landing *landings;
    void *value_apart;
    struct tt_tensor ***tensors;
    uint32_t tensor_count;
    tt__rpc_transfer transfer; /* parts in, then out */

    tt_rpc_value result;
    bool returned;
    tt_future *later;
    later_link *link;    /* of CALL_LATER */
    tt__rpc_part *parts; /* of the reply */
    uint8_t *apart;
    uint32_t part_count;
};

/* ---- the end of a call */

/* The call is begun, or over: what it took of the caller's window is given back, and its bytes wait no more. */
static void uncount_call(tt_rpc *rpc, tt_rpc_call *call) {
    tt__rpc_peer *peer = rpc->peers[call->from];
    size_t window = call->window;
    rpc->counters.bytes -= call->counted + call->landing;
    rpc->landing_bytes -= call->landing;
    peer->landing -= call->landing;
    call->counted = call->landing = call->window = 0;
    if (window && call->from != rpc->id)
        tt__rpc_give_credit(rpc, peer, window);
}

static void unlist_call(tt_rpc *rpc, tt_rpc_call *call) {
    if (call->previous)
        call->previous->next = call->next;
    else
        rpc->serving = call->next;
    if (call->next)
        call->next->previous = call->previous;
    rpc->counters.serving--;
    rpc->peers[call->from]->calls_in--;
    uncount_call(rpc, call);
    if (rpc->sleepers && rpc->leaving && !rpc->counters.serving && (rpc->asked_wave || rpc->network->comes_and_goes))
        pthread_cond_broadcast(&rpc->changed);
}

/* Free a call that is not listed any more, without the lock. */
static void free_call(tt_rpc_call *call) {
    for (uint32_t i = 0; i < call->part_count; i++)
        if (call->parts[i].keep)
            tt__rpc_tensor_hooks_of()->release(call->parts[i].keep);
    tt_rpc_value_free(&call->args);
    tt_rpc_value_free(&call->result);
    tt_future_free(call->later);
    for (uint32_t i = 0; call->refs && i < call->view.header.refs; i++)
        tt_rref_free(call->refs[i]);
    tt_rref_free(call->kept);
    free(call->refs);
    free(call->landings);
    free(call->value_apart);
    free(call->tensors);
    free(call->parts);
    free(call->apart);
    free(call);
}

static void end_call(tt_rpc_call *call) {
    tt_rpc *rpc = call->rpc;
    tt__rpc_lock(rpc);
    tt__transfer_end(rpc, &call->transfer);
    unlist_call(rpc, call);
    tt__packet_free(rpc, call->packet);
    tt__rpc_unlock(rpc);
    free_call(call);
}

/* ---- replies; without the lock */

static void end_sent_call(tt_rpc *rpc, tt__rpc_due *due) {
    (void)rpc;
    end_call((tt_rpc_call *)(void *)due);
}

/* Send what was encoded, and keep the call until its parts are out. */
static tt_status send_encoded(tt_rpc_call *call, tt__rpc_encoder *e, tt__rpc_header header) {
    tt_rpc *rpc = call->rpc;
    tt__rpc_header *own = tt__encoder_header(e);
    own->kind = header.kind;
    own->id = header.id;
    own->context = header.context;
    own->message = header.message;
    if (header.kind == TT__RPC_ERROR)
        own->flags = header.flags;
    call->transfer.due = &call->due;
    call->due.run = end_sent_call;
    TT__TRY(tt__transfer_make(&call->transfer, e->part_count));
    for (uint32_t i = 0; i < e->part_count; i++)
        tt__transfer_part(&call->transfer, i, call->from, header.id, true, e->parts[i].data, (size_t)e->parts[i].bytes);
    call->stage = CALL_REPLIES;
    tt_status status = call->lost ? TT_ERR_PEER : tt__rrefs_given(rpc, call->from, e->refs, e->ref_count);
    if (!status) {
        status = tt__rpc_send(rpc, call->from, e->data, e->size, e->part_count ? &call->transfer : NULL);
        if (status)
            tt__rrefs_not_given(rpc, call->from, e->refs, e->ref_count);
    }
    if (!status) {
        call->parts = e->parts;
        call->apart = e->apart;
        call->part_count = e->part_count;
    }
    return status;
}

static tt_status encode_result(tt_rpc_call *call, tt__rpc_encoder *e, const tt_rpc_value *value,
                               tt__rpc_context *context) {
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    tt__encoder_begin(e, "");
    tt__encoder_value(e, value);
    tt__rpc_ref few[8], *refs = e->ref_count <= 8 ? few : calloc(e->ref_count, sizeof *refs);
    tt_status status = e->status;
    if (!status && !refs)
        status = tt__fail(TT_ERR_MEMORY, "no memory for %u references", e->ref_count);
    for (uint32_t i = 0; !status && i < e->ref_count; i++)
        refs[i] = e->refs[i]->ref;
    if (!status)
        status = tt__encoder_finish(e, refs);
    if (refs != few)
        free(refs);
    if (!status && context->context && e->requires_grad)
        status = hooks->sending(call->rpc, call->from, context, e->tensors, e->tensor_count);
    return status;
}

/* Send an error: this thread's last. */
static void reply_error(tt_rpc_call *call) {
    tt__rpc_encoder e;
    tt_status why = tt_last_status() ? tt_last_status() : TT_ERR_STATE;
    tt__encoder_begin(&e, "");
    tt__encoder_text(&e, *tt_last_error() ? tt_last_error() : tt_status_text(why));
    tt_status status = tt__encoder_finish(&e, NULL);
    tt__rpc_lock(call->rpc);
    if (!status)
        status = send_encoded(
            call, &e, (tt__rpc_header){.kind = TT__RPC_ERROR, .flags = (uint8_t)why, .id = call->view.header.id});
    tt__rpc_unlock(call->rpc);
    tt__encoder_free(&e, true);
    end_call(call);
}

/* Send the result. */
static void reply_value(tt_rpc_call *call, const tt_rpc_value *value) {
    tt__rpc_encoder e;
    tt__rpc_context context = {.context = call->view.header.context};
    tt_status status = encode_result(call, &e, value, &context);
    if (status) {
        tt__encoder_free(&e, true);
        reply_error(call);
        return;
    }
    tt__rpc_lock(call->rpc);
    status = send_encoded(
        call, &e,
        (tt__rpc_header){
            .kind = TT__RPC_REPLY, .id = call->view.header.id, .context = context.context, .message = context.message});
    bool waits = !status && e.part_count;
    tt__transfers_look(call->rpc);
    tt__rpc_notice(call->rpc);
    tt__rpc_unlock(call->rpc);
    tt__encoder_free(&e, status != TT_OK);
    if (!waits)
        end_call(call);
}

/* The result stays here: the caller only learns that the call is over. */
static void keep_result(tt_rpc_call *call, tt_status status) {
    static const tt_rpc_value none;
    tt_rpc_value kept = call->result;
    char text[TT__ERROR_TEXT_SIZE];
    call->result = tt_rpc_none();
    if (!status && !kept.owned) {
        tt_rpc_value given = kept;
        status = tt_rpc_value_copy(&kept, &given);
    }
    snprintf(text, sizeof text, "%s", status ? tt_last_error() : "");
    if (status)
        tt_rpc_value_free(&kept);
    tt__future_end(call->kept->value, status, text, status ? tt_rpc_none() : kept);
    reply_value(call, &none);
}

/* The function is through. */
static void finish_call(tt_rpc_call *call, tt_status status) {
    if (call->kept)
        keep_result(call, status);
    else if (status)
        reply_error(call);
    else
        reply_value(call, &call->result);
}

static void reply_later(tt_future *future, void *user) {
    later_link *link = user;
    tt_rpc_call *call = link->call;
    bool dropped = atomic_exchange(&link->taken, true);
    free(link);
    if (dropped)
        return;
    tt_status status = tt_future_wait(future, 0); /* it is done */
    const tt_rpc_value *value = status ? NULL : tt_future_value(future);
    if (value && call->function)
        status =
            tt__signature_check_result(&call->function->signature, call->function->name, call->function->text, value);
    if (call->kept && !status)
        status = tt_rpc_value_copy(&call->result, value);
    if (status || call->kept)
        finish_call(call, status);
    else
        reply_value(call, value);
}

/* A call that is dropped has no lock, and no list. */
static void run_dropped(tt_rpc *rpc, tt__rpc_due *due) {
    (void)rpc;
    free_call((tt_rpc_call *)(void *)due);
}

/* End a call that waits for a future, whose reply nobody will take. The lock is held. */
static void drop_later(tt_rpc *rpc, tt_rpc_call *call) {
    if (call->stage != CALL_LATER || atomic_exchange(&call->link->taken, true))
        return;
    unlist_call(rpc, call);
    tt__packet_free(rpc, call->packet);
    call->due.run = run_dropped;
    tt__rpc_due_add(rpc, &call->due);
}

/* Reply when `future` is done. */
static void follow_later(tt_rpc_call *call, tt_future *future) {
    tt_rpc *rpc = call->rpc;
    later_link *link = malloc(sizeof *link);
    if (!link) {
        finish_call(call, tt__fail(TT_ERR_MEMORY, "no memory for a reply that comes later"));
        return;
    }
    *link = (later_link){.call = call};
    tt_future_share(future); /* the call may be dropped meanwhile */
    tt__rpc_lock(rpc);
    bool lost = call->lost;
    call->link = link;
    call->stage = lost ? CALL_RUNS : CALL_LATER;
    tt__rpc_unlock(rpc);
    tt_status status = lost ? TT_ERR_PEER : tt__future_follow(future, reply_later, link);
    if (status) {
        bool dropped = atomic_exchange(&link->taken, true);
        free(link);
        if (!dropped)
            finish_call(call, lost ? tt__fail(TT_ERR_PEER, "the caller is lost") : status);
    }
    tt_future_free(future);
}

/* ---- running; without the lock */

/* A function that runs, should it end its thread. */
typedef struct running_function {
    tt_rpc_call *call;
    const tt__rpc_tensor_hooks *hooks;
    uint64_t before;
} running_function;

static void function_ends_thread(void *arg) {
    const running_function *running = arg;
    if (running->hooks)
        running->hooks->leave(running->before);
    finish_call(running->call, tt__fail(TT_ERR_STATE, "the function ended its thread: expected it to return"));
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
    tt_clear_error();
    tt_status status = call_function(call);
    if (!status && call->later)
        follow_later(call, call->later);
    else
        finish_call(call, status);
}

/* A fetch: reply when the value has been made. */
static void run_fetch(tt_rpc_call *call) { follow_later(call, call->refs[0]->value); }

/* ---- arguments; without the lock */

static tt_status read_args(tt_rpc_call *call, const uint8_t *at, size_t bytes) {
    tt__rpc_decoder decoder = {
        .view = &call->view, .at = at, .end = at + bytes, .refs = call->refs, .landings = call->landings};
    tt_status status = tt__decode_value(&decoder, &call->args);
    call->tensors = decoder.tensors;
    call->tensor_count = decoder.tensor_count;
    call->args_read = true;
    if (!status && call->args.kind != TT_RPC_LIST)
        return tt__fail(TT_ERR_PROTOCOL, "another worker sent a call whose arguments are no list");
    return status;
}

static void go_on_call(tt_rpc *rpc, tt__rpc_due *due);

/* Parts have come: a thread that runs functions goes on. */
static void parts_have_come(tt_rpc *rpc, tt__rpc_due *due) {
    due->run = go_on_call;
    tt__rpc_lock(rpc);
    tt__rpc_queue_add(rpc, due);
    tt__rpc_notice(rpc);
    tt__rpc_unlock(rpc);
}

/* The bytes of a call's parts; SIZE_MAX: more than that. */
static size_t all_part_bytes(const tt_rpc_call *call) {
    size_t all = 0;
    for (uint32_t i = 0; i < call->view.header.parts; i++) {
        uint64_t bytes = tt__packet_part_bytes(&call->view, i);
        all = bytes > SIZE_MAX - all ? SIZE_MAX : all + (size_t)bytes;
    }
    return all;
}

/* May memory be made for a call's parts, and the parts come? Those of calls that are not begun take `max_memory` at
 * most, unless it is a single one; and those of one worker at most as much as is left, so that one whose parts do not
 * come does not keep others waiting. The lock is held. */
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

/* Bytes do not wait any more: calls that were held may go on. */
static void let_held_go(tt_rpc *rpc) {
    tt__rpc_due_list held = {rpc->held.first, rpc->held.first ? rpc->held.end : &held.first};
    rpc->held = (tt__rpc_due_list){NULL, &rpc->held.first};
    for (tt__rpc_due *due; (due = tt__rpc_list_take(&held));) {
        tt_rpc_call *call = (tt_rpc_call *)(void *)due;
        if (call->lost || admit_call(rpc, call))
            tt__rpc_queue_add(rpc, due);
        else
            tt__rpc_list_add(&rpc->held, due);
    }
}

static bool takes_replies(const tt_rpc *rpc, int id, size_t at_most) {
    return id == rpc->id || tt__unsent_bytes(rpc->network->messages, id) <= at_most;
}

void tt__serve_look(tt_rpc *rpc) {
    let_held_go(rpc);
    tt__rpc_due_list slow = {rpc->slow.first, rpc->slow.first ? rpc->slow.end : &slow.first};
    rpc->slow = (tt__rpc_due_list){NULL, &rpc->slow.first};
    for (tt__rpc_due *due; (due = tt__rpc_list_take(&slow));) {
        const tt_rpc_call *call = (tt_rpc_call *)(void *)due;
        if (call->lost || takes_replies(rpc, call->from, UNSENT_MAX / 2))
            tt__rpc_queue_add(rpc, due);
        else
            tt__rpc_list_add(&rpc->slow, due);
    }
}

/* Is the call to wait, for memory or until its caller takes what it is sent? It is kept, then. */
static bool is_to_wait(tt_rpc *rpc, tt_rpc_call *call) {
    bool waits = false;
    tt__rpc_lock(rpc);
    if (call->stage == CALL_QUEUED && !call->lost) {
        if (!takes_replies(rpc, call->from, UNSENT_MAX)) {
            tt__rpc_list_add(&rpc->slow, &call->due);
            waits = true;
        } else if (!call->refused && call->view.header.parts && !call->admitted && !admit_call(rpc, call)) {
            tt__rpc_list_add(&rpc->held, &call->due);
            waits = true;
        }
    }
    tt__rpc_unlock(rpc);
    return waits;
}

/* The lock is held. */
static tt_status begin_call_parts(tt_rpc *rpc, tt_rpc_call *call, uint32_t from, uint32_t end) {
    if (call->lost)
        return tt__fail(TT_ERR_PEER, "the caller is lost");
    TT__TRY(tt__transfer_make(&call->transfer, end - from));
    for (uint32_t i = from; i < end; i++) {
        tt__transfer_part(&call->transfer, i - from, call->from, call->view.header.id, false, call->landings[i].data,
                          (size_t)call->landings[i].bytes);
        call->transfer.messages[i - from].key.step = 2 * i;
    }
    call->stage = CALL_LANDS;
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

/* Has the value a place for each part that comes with it? */
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
        if (landing->bytes > SIZE_MAX / 2 || !(call->value_apart = malloc(landing->bytes ? landing->bytes : 1)))
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
        return tt__fail(landed, "not all of the arguments came");
    if (call->args_read)
        return TT_OK;
    TT__TRY(read_args(call, call->value_apart, (size_t)call->landings[parts - 1].bytes));
    TT__TRY(check_landings(call, 0, parts - 1));
    *waits = parts > 1;
    return parts > 1 ? receive_call_parts(call, 0, parts - 1) : TT_OK;
}

static tt_status finish_args(tt_rpc_call *call) {
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    const tt__rpc_header *header = &call->view.header;
    for (uint32_t i = 0; call->landings && i < header->parts; i++)
        if (call->landings[i].tensor)
            TT__TRY(hooks->made(call->landings[i].tensor, &call->landings[i].form));
    if (!header->message || !call->tensor_count)
        return TT_OK;
    struct tt_tensor **tensors = calloc(call->tensor_count, sizeof *tensors);
    if (!tensors)
        return tt__fail(TT_ERR_MEMORY, "no memory for the tensors of a call");
    for (uint32_t i = 0; i < call->tensor_count; i++)
        tensors[i] = *call->tensors[i];
    tt_status status = hooks->received(call->rpc, call->from, &(tt__rpc_context){header->context, header->message},
                                       tensors, call->tensor_count);
    for (uint32_t i = 0; i < call->tensor_count; i++)
        *call->tensors[i] = tensors[i];
    free(tensors);
    return status;
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
    finish_call(call, status);
}

/* A thread takes the call from the queue, or goes on with it now that its parts have come. */
static void go_on_call(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    bool waits = false, fetch = call->view.header.kind == TT__RPC_FETCH;
    if (is_to_wait(rpc, call))
        return;
    if (call->refused) {
        run_refused(call);
        return;
    }
    tt_status status = call->stage == CALL_QUEUED ? begin_args(call, &waits) : call_landed(call, &waits);
    if (!status && waits)
        return;
    tt__rpc_lock(rpc);
    bool held = call->landing;
    uncount_call(rpc, call);
    call->stage = CALL_RUNS;
    if (held && rpc->held.first) {
        let_held_go(rpc);
        tt__rpc_notice(rpc);
    }
    tt__rpc_unlock(rpc);
    if (!status)
        status = finish_args(call);
    if (!status && !fetch)
        status = check_args(call);
    if (status)
        finish_call(call, status);
    else if (fetch)
        run_fetch(call);
    else
        run_function(call);
}

/* ---- what happens to calls; the lock is held */

static tt_status take_refs(tt_rpc *rpc, tt_rpc_call *call) {
    uint32_t count = call->view.header.refs;
    if (!count)
        return TT_OK;
    if (!(call->refs = calloc(count, sizeof *call->refs)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %u references", count);
    tt_status status = tt__rrefs_received(rpc, call->from, &call->view, call->refs);
    if (status) {
        free(call->refs);
        call->refs = NULL;
    }
    return status;
}

static void list_call(tt_rpc *rpc, tt_rpc_call *call) {
    call->next = rpc->serving;
    if (call->next)
        call->next->previous = call;
    rpc->serving = call;
    rpc->counters.serving++;
    rpc->counters.served++;
    rpc->counters.bytes += call->counted;
    rpc->peers[call->from]->calls_in++;
}

/* Is a call of this worker to be begun at all? */
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

/* The call will fail with this thread's last error. */
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
    if (!call)
        return tt__fail(TT_ERR_MEMORY, "no memory for a call");
    call->rpc = rpc;
    call->from = from->id;
    call->view = *view;
    call->due.run = go_on_call;
    call->counted = call->window = packet->size;
    tt_status status = fetch && view->header.refs != 1 ? tt__fail(TT_ERR_PROTOCOL, "a fetch of no reference") : TT_OK;
    if (!status)
        status = take_refs(rpc, call);
    bool gone = status == TT_ERR_NOT_FOUND; /* the caller's fault or nobody's: its call fails */
    if (gone || (!status && (status = may_serve(rpc, from)))) {
        status = refuse_call(call, status);
    }
    if (!status && fetch && call->refs && !call->refs[0]->value)
        status = tt__fail(TT_ERR_PROTOCOL, "a fetch of what lies elsewhere");
    if (!status && view->header.kind == TT__RPC_KEEP &&
        !(call->kept = tt__rref_kept(rpc, from->id, view->header.serial,
                                     tt__function_find(view->name, view->header.name_bytes))))
        status = tt_last_status();
    if (status) {
        for (uint32_t i = 0; call->refs && i < view->header.refs; i++)
            tt__rref_drop(rpc, call->refs[i]);
        free(call->refs);
        free(call->apart);
        free(call);
        return status;
    }
    call->packet = packet;
    list_call(rpc, call);
    tt__rpc_queue_add(rpc, &call->due);
    return TT_OK;
}

tt_rpc_call *tt__serve_find(const tt_rpc *rpc, int from, uint32_t id) {
    tt_rpc_call *call = rpc->serving;
    while (call && (call->from != from || call->view.header.id != id))
        call = call->next;
    return call;
}

/* Nobody waits for a call that has not begun: it does not. */
static void drop_unbegun(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    (void)rpc;
    if (call->kept)
        tt__future_end(call->kept->value, TT_ERR_ABORTED, "the call that was to make the value was given up",
                       tt_rpc_none());
    end_call(call);
}

static bool is_queued(const tt_rpc_call *call) { return call->stage == CALL_QUEUED && call->due.run == go_on_call; }

void tt__serve_forget(tt_rpc *rpc, int from, uint32_t id) {
    tt_rpc_call *call = tt__serve_find(rpc, from, id);
    if (call && is_queued(call))
        call->due.run = drop_unbegun;
    for (uint32_t i = 0; call && call->stage == CALL_REPLIES && i < call->transfer.count; i++)
        tt__message_cancel(rpc->network->messages, &call->transfer.messages[i], TT_ERR_ABORTED);
}

/* No reply is wanted of a call. */
static void lose_call(tt_rpc *rpc, tt_rpc_call *call, tt_status status) {
    call->lost = true;
    if (call->transfer.listed)
        for (uint32_t i = 0; i < call->transfer.count; i++)
            tt__message_cancel(rpc->network->messages, &call->transfer.messages[i], status);
    drop_later(rpc, call);
}

void tt__serve_lost(tt_rpc *rpc, int id) {
    for (tt_rpc_call *call = rpc->serving, *next; call; call = next) {
        next = call->next;
        if (call->from == id)
            lose_call(rpc, call, TT_ERR_PEER);
    }
    tt__serve_look(rpc);
    tt__rpc_notice(rpc);
}

void tt__serve_end(tt_rpc *rpc) {
    for (tt_rpc_call *call = rpc->serving, *next; call; call = next) {
        next = call->next;
        lose_call(rpc, call, TT_ERR_ABORTED);
    }
    tt__serve_look(rpc);
    tt__rpc_notice(rpc);
}

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
    finish_call(call, TT_ERR_SYSTEM);
}

void tt__serve_refuse_queue(tt_rpc *rpc) {
    tt__rpc_due *work = tt__rpc_queue_take(rpc);
    if (!work)
        return;
    work->run = refuse_for_threads;
    tt__rpc_due_add(rpc, work);
}

/* ---- who waits for whom */

tt_rpc_call *tt__serve_maker(const tt_rpc *rpc, const tt_future *value) {
    tt_rpc_call *call = rpc->serving;
    while (call && (!call->kept || call->kept->value != value))
        call = call->next;
    return call;
}

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

const char *tt__serve_function(const tt_rpc_call *call, int *bytes) {
    *bytes = call->view.header.name_bytes;
    return call->view.name;
}

uint64_t tt__serve_key(const tt_rpc_call *call) { return (uint64_t)(call->from + 1) << 32 | call->view.header.id; }

/* ---- for functions */

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
    if (!call || !out || index < 0 || index >= call->args.list.count)
        return tt__fail_argument("tt_rpc_take_arg: there is no argument %lld", (long long)index);
    tt_rpc_value *value = &call->args.list.items[index];
    if (!value->owned && (value->kind == TT_RPC_TEXT || value->kind == TT_RPC_BYTES))
        TT__TRY(tt_rpc_value_copy(out, value)); /* it lies in the packet */
    else if (value->kind == TT_RPC_LIST || value->kind == TT_RPC_MAP)
        TT__TRY(tt_rpc_value_copy(out, value));
    else {
        *out = *value;
        *value = tt_rpc_none();
        return TT_OK;
    }
    tt_rpc_value_free(value);
    return TT_OK;
}

tt_status tt_rpc_return(tt_rpc_call *call, tt_rpc_value value) {
    tt_rpc_value kept = value;
    tt_status status = call ? TT_OK : tt__fail_argument("tt_rpc_return: the call is NULL");
    if (!status && (call->returned || call->later))
        status = tt__fail(TT_ERR_STATE, "tt_rpc_return: the call has a result already");
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
