#include "rpc/serving.h"

#include "base/error.h"
#include "rpc/packets_memory.h"
#include "rpc/peers.h"
#include "rpc/pool_crew.h"
#include "rpc/references.h"
#include "rpc/sending.h"
#include "rpc/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How far a call is. */
typedef enum call_stage {
    CALL_QUEUED, /* to be read */
    CALL_LANDS,  /* its parts come */
    CALL_RUNS,
    CALL_LATER,  /* the function has returned, and replies by a future */
    CALL_REPLIES /* the reply's parts go out */
} call_stage;

struct tt_rpc_call {
    tt__rpc_due due;
    struct tt_rpc_call *next, *previous; /* in rpc->serving */
    tt_rpc *rpc;
    int from;
    call_stage stage;
    bool lost;      /* the caller takes no reply */
    size_t counted; /* bytes in rpc->counters.bytes, */
    size_t landing; /* and in rpc->landing_bytes */
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
    tt__rpc_part *parts; /* of the reply */
    uint8_t *apart;
    uint32_t part_count;
};

/* ---- the end of a call */

static void unlist_call(tt_rpc *rpc, tt_rpc_call *call) {
    if (call->previous)
        call->previous->next = call->next;
    else
        rpc->serving = call->next;
    if (call->next)
        call->next->previous = call->previous;
    rpc->counters.serving--;
    rpc->counters.bytes -= call->counted + call->landing;
    rpc->landing_bytes -= call->landing;
    call->counted = call->landing = 0;
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
    tt_rpc_call *call = user;
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

/* ---- running; without the lock */

static tt_status call_function(tt_rpc_call *call) {
    const tt__rpc_function *function = call->function;
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    uint64_t context = call->view.header.context, before = 0, errors = tt__error_count();
    if (hooks) {
        before = hooks->current();
        hooks->enter(call->rpc, context);
    }
    tt_rpc_call *outer = tt__rpc_set_call(call);
    tt_status status = function->fn(call);
    tt__rpc_set_call(outer);
    if (hooks)
        hooks->leave(before);
    if (status && tt__error_count() == errors)
        return tt__fail(status, "the function failed: %s", tt_status_text(status));
    if (status)
        return status;
    return call->returned || call->later
               ? TT_OK
               : tt__signature_check_result(&function->signature, function->name, function->text, &call->result);
}

static void set_stage(tt_rpc_call *call, call_stage stage) {
    tt__rpc_lock(call->rpc);
    call->stage = stage;
    tt__rpc_unlock(call->rpc);
}

static void run_function(tt_rpc_call *call) {
    tt_clear_error();
    tt_status status = call_function(call);
    if (!status && call->later) {
        set_stage(call, CALL_LATER);
        status = tt__future_follow(call->later, reply_later, call);
        if (!status)
            return;
    }
    finish_call(call, status);
}

/* A fetch: reply when the value has been made. */
static void run_fetch(tt_rpc_call *call) {
    set_stage(call, CALL_LATER);
    if (tt__future_follow(call->refs[0]->value, reply_later, call))
        reply_error(call);
}

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
static void parts_wait(tt_rpc *rpc, tt__rpc_due *due);

/* Parts have come: a thread that runs functions goes on. */
static void parts_have_come(tt_rpc *rpc, tt__rpc_due *due) {
    due->run = go_on_call;
    tt__rpc_lock(rpc);
    tt__rpc_queue_add(rpc, due);
    tt__rpc_notice(rpc);
    tt__rpc_unlock(rpc);
}

/* Receive them now, or when others have begun that were received: those that are not begun take `max_memory` at most,
 * unless it is a single one. The lock is held. */
static void ask_for_parts(tt_rpc *rpc, tt_rpc_call *call) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < call->transfer.count; i++)
        bytes += call->transfer.messages[i].bytes;
    if (rpc->landing_bytes && (bytes > rpc->max_memory || rpc->landing_bytes > rpc->max_memory - bytes)) {
        call->due.run = parts_wait;
        tt__rpc_list_add(&rpc->held, &call->due);
        return;
    }
    rpc->landing_bytes += bytes;
    rpc->counters.bytes += bytes;
    call->landing += bytes;
    call->transfer.due = &call->due;
    call->due.run = parts_have_come;
    tt__transfer_begin(rpc, &call->transfer, true);
    tt__transfers_look(rpc);
    tt__rpc_notice(rpc);
}

/* A call whose parts were not asked for is asked again. */
static void parts_wait(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    tt__rpc_lock(rpc);
    bool lost = call->lost;
    if (!lost)
        ask_for_parts(rpc, call);
    tt__rpc_unlock(rpc);
    if (lost)
        end_call(call);
}

/* The call's bytes wait no more for a thread. The lock is held. */
static void uncount_bytes(tt_rpc *rpc, tt_rpc_call *call) {
    rpc->counters.bytes -= call->counted + call->landing;
    rpc->landing_bytes -= call->landing;
    call->counted = call->landing = 0;
    tt__rpc_due *held = tt__rpc_list_take(&rpc->held);
    if (held)
        tt__rpc_due_add(rpc, held);
}

static tt_status receive_call_parts(tt_rpc_call *call, uint32_t from, uint32_t end) {
    tt_rpc *rpc = call->rpc;
    TT__TRY(tt__transfer_make(&call->transfer, end - from));
    for (uint32_t i = from; i < end; i++) {
        if (!call->landings[i].data && tt__packet_part_bytes(&call->view, i))
            return tt__fail(TT_ERR_PROTOCOL, "another worker sent a part that its value does not have");
        tt__transfer_part(&call->transfer, i - from, call->from, call->view.header.id, false, call->landings[i].data,
                          (size_t)call->landings[i].bytes);
        call->transfer.messages[i - from].key.step = 2 * i;
    }
    tt__rpc_lock(rpc);
    call->stage = CALL_LANDS;
    tt_status status = call->lost ? tt__fail(TT_ERR_PEER, "the caller is lost") : TT_OK;
    if (!status)
        ask_for_parts(rpc, call);
    tt__rpc_unlock(rpc);
    return status;
}

static tt_status begin_args(tt_rpc_call *call, bool *waits) {
    const tt__rpc_header *header = &call->view.header;
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

/* Run it, now that all has come. */
static void go_on_call(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    bool waits = false, fetch = call->view.header.kind == TT__RPC_FETCH;
    tt_status status = call->stage == CALL_QUEUED ? begin_args(call, &waits) : call_landed(call, &waits);
    (void)rpc;
    if (!status && waits)
        return;
    tt__rpc_lock(rpc);
    uncount_bytes(rpc, call);
    call->stage = CALL_RUNS;
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

/* A thread takes the call from the queue: what it took of the window is given back. */
static void run_call(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    tt__rpc_lock(rpc);
    due->run = go_on_call; /* it has begun */
    if (call->from != rpc->id)
        tt__rpc_give_credit(rpc, rpc->peers[call->from], call->packet->size);
    tt__rpc_unlock(rpc);
    go_on_call(rpc, due);
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

static void refuse_run(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rpc_call *call = (tt_rpc_call *)(void *)due;
    tt__rpc_lock(rpc);
    tt__fail(TT_ERR_NOT_FOUND, "%s", (const char *)call->apart);
    tt__rpc_unlock(rpc);
    free(call->apart);
    call->apart = NULL;
    finish_call(call, TT_ERR_NOT_FOUND);
}

static void list_call(tt_rpc *rpc, tt_rpc_call *call) {
    call->next = rpc->serving;
    if (call->next)
        call->next->previous = call;
    rpc->serving = call;
    rpc->counters.serving++;
    rpc->counters.served++;
    rpc->counters.bytes += call->counted;
}

tt_status tt__serve_begin(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view, tt__rpc_packet *packet) {
    tt_rpc_call *call = calloc(1, sizeof *call);
    bool fetch = view->header.kind == TT__RPC_FETCH;
    if (!call)
        return tt__fail(TT_ERR_MEMORY, "no memory for a call");
    call->rpc = rpc;
    call->from = from->id;
    call->view = *view;
    call->due.run = run_call;
    call->counted = packet->size;
    tt_status status = fetch && view->header.refs != 1 ? tt__fail(TT_ERR_PROTOCOL, "a fetch of no reference") : TT_OK;
    if (!status)
        status = take_refs(rpc, call);
    bool gone = status == TT_ERR_NOT_FOUND; /* the caller's fault or nobody's: its call fails */
    if (gone) {
        call->view.header.refs = 0;
        call->apart = (uint8_t *)strdup(tt_last_error());
        call->due.run = refuse_run;
        status = call->apart ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a call");
    }
    if (!status && fetch && !gone && !call->refs[0]->value)
        status = tt__fail(TT_ERR_PROTOCOL, "a fetch of what lies elsewhere");
    if (!status && view->header.kind == TT__RPC_KEEP &&
        !(call->kept = tt__rref_kept(rpc, from->id, view->header.serial,
                                     tt__function_find(view->name, view->header.name_bytes))))
        status = tt_last_status();
    if (status) {
        for (uint32_t i = 0; call->refs && i < view->header.refs; i++)
            tt__rref_drop(rpc, call->refs[i]);
        free(call->refs);
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
    tt__rpc_lock(rpc);
    if (call->from != rpc->id)
        tt__rpc_give_credit(rpc, rpc->peers[call->from], call->packet->size);
    tt__rpc_unlock(rpc);
    if (call->kept)
        tt__future_end(call->kept->value, TT_ERR_ABORTED, "the call that was to make the value was given up",
                       tt_rpc_none());
    end_call(call);
}

void tt__serve_forget(tt_rpc *rpc, int from, uint32_t id) {
    tt_rpc_call *call = tt__serve_find(rpc, from, id);
    if (call && call->due.run == run_call)
        call->due.run = drop_unbegun;
    for (uint32_t i = 0; call && call->stage == CALL_REPLIES && i < call->transfer.count; i++)
        tt__message_cancel(rpc->network->messages, &call->transfer.messages[i], TT_ERR_ABORTED);
}

/* Calls that are held look whether they still are to be. */
static void let_held_go(tt_rpc *rpc) {
    for (tt__rpc_due *held; (held = tt__rpc_list_take(&rpc->held));)
        tt__rpc_due_add(rpc, held);
}

void tt__serve_lost(tt_rpc *rpc, int id) {
    for (tt_rpc_call *call = rpc->serving; call; call = call->next) {
        if (call->from != id)
            continue;
        call->lost = true;
        if (call->transfer.listed)
            for (uint32_t i = 0; i < call->transfer.count; i++)
                tt__message_cancel(rpc->network->messages, &call->transfer.messages[i], TT_ERR_PEER);
    }
    let_held_go(rpc);
}

int64_t tt__serve_end(tt_rpc *rpc) {
    for (tt_rpc_call *call = rpc->serving; call; call = call->next) {
        call->lost = true;
        if (call->transfer.listed)
            for (uint32_t i = 0; i < call->transfer.count; i++)
                tt__message_cancel(rpc->network->messages, &call->transfer.messages[i], TT_ERR_ABORTED);
    }
    let_held_go(rpc);
    return rpc->counters.serving;
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
