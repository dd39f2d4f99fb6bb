/* Replies to calls of other workers, and the end of these calls. */
#include "base/error.h"
#include "rpc/calls/calling.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/served_call.h"
#include "rpc/references/references.h"
#include "rpc/threads/waiting.h"
#include "rpc/values/landing_memory.h"
#include "rpc/values/packets_memory.h"
#include "rpc/values/rpc_value.h"

#include <stdio.h>
#include <stdlib.h>

enum { SHORT_TEXT = 500 /* bytes of an error's text whose packet needs no memory */ };

/* ---- the end of a call */

void tt__served_uncount(tt_rpc *rpc, tt_rpc_call *call) {
    tt__rpc_peer *peer = rpc->peers[call->from];
    size_t window = call->window;
    rpc->counters.bytes -= call->counted + call->landing;
    rpc->landing_bytes -= call->landing;
    peer->landing -= call->landing;
    call->counted = call->landing = call->window = 0;
    if (window && call->from != rpc->id)
        tt__rpc_give_credit(rpc, peer, window);
}

void tt__served_on_thread(tt_rpc *rpc, tt_rpc_call *call, bool on) {
    int by = (int)on - (int)call->on_thread;
    call->on_thread = on;
    rpc->on_threads += by;
    rpc->peers[call->from]->on_threads += by;
}

static void unlist_call(tt_rpc *rpc, tt_rpc_call *call) {
    tt__served_unlist(rpc, call);
    tt__served_on_thread(rpc, call, false);
    rpc->peers[call->from]->calls_in--;
    tt__served_uncount(rpc, call);
    if (rpc->sleepers && rpc->leaving && !rpc->counters.serving && (rpc->waves_asked || rpc->network->comes_and_goes))
        pthread_cond_broadcast(&rpc->changed);
}

/* Free a call that is out of rpc->serving. The lock is not held. */
static void free_call(tt_rpc_call *call) {
    for (uint32_t i = 0; i < call->part_count; i++)
        if (call->parts[i].keep)
            tt__rpc_tensor_hooks_of()->release(call->parts[i].keep);
    tt__value_free_lent(&call->args);
    tt_rpc_value_free(&call->result);
    tt_future_free(call->later);
    for (uint32_t i = 0; call->refs && i < call->view.header.refs; i++)
        tt_rref_free(call->refs[i]);
    tt_rref_free(call->kept);
    free(call->refs);
    free(call->landings);
    tt__landing_give(call->value_apart);
    free(call->tensors);
    free(call->parts);
    free(call->apart);
    free(call);
}

void tt__served_end(tt_rpc_call *call) {
    tt_rpc *rpc = call->rpc;
    tt__rpc_lock(rpc);
    tt__transfer_end(rpc, &call->transfer);
    unlist_call(rpc, call);
    tt__packet_free(rpc, call->packet);
    tt__rpc_unlock(rpc);
    free_call(call);
}

/* ---- replies; the lock is not held, unless a function says otherwise */

static void end_sent_call(tt_rpc *rpc, tt__rpc_due *due) {
    (void)rpc;
    tt__served_end((tt_rpc_call *)(void *)due);
}

/* Send the encoded reply. The call takes its parts, and lives until they have been sent. The lock is held. */
static tt_status send_encoded(tt_rpc_call *call, tt__rpc_encoder *e, tt__rpc_header header) {
    tt_rpc *rpc = call->rpc;
    tt__rpc_header *own = tt__encoder_header(e);
    own->kind = header.kind;
    own->id = header.id;
    own->context = header.context;
    own->message = header.message;
    call->transfer.due = &call->due;
    call->due.run = end_sent_call;
    TT__TRY(tt__transfer_make(&call->transfer, e->part_count));
    for (uint32_t i = 0; i < e->part_count; i++)
        tt__transfer_part(&call->transfer, i, call->from, header.id, true, e->parts[i].data, (size_t)e->parts[i].bytes);
    call->stage = CALL_REPLIES;
    tt__served_on_thread(rpc, call, false);
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
    tt_status status = tt__rrefs_finish(e);
    if (!status && context->context && e->requires_grad)
        status = hooks->sending(call->rpc, call->from, context, e->tensors, e->tensor_count);
    return status;
}

tt_status tt__served_refuse(tt_rpc *rpc, int to, uint32_t id, tt_status why) {
    tt__rpc_encoder e;
    char text[SHORT_TEXT];
    snprintf(text, sizeof text, "%s", *tt_last_error() ? tt_last_error() : tt_status_text(why));
    tt__encoder_begin(&e, "");
    tt__encoder_text(&e, *tt_last_error() ? tt_last_error() : tt_status_text(why));
    if (tt__encoder_finish(&e, NULL)) {
        tt__encoder_free(&e, true);
        tt__encoder_begin(&e, "");
        tt__encoder_text(&e, text);
        tt_ignore(tt__encoder_finish(&e, NULL));
    }
    tt__rpc_header *header = tt__encoder_header(&e);
    header->kind = TT__RPC_ERROR;
    header->flags = (uint8_t)why;
    header->id = id;
    tt_status status = tt__rpc_send(rpc, to, e.data, e.size, NULL);
    if (status && to == rpc->id) /* there is no memory for the packet */
        tt__call_fail(rpc, to, id, why, text);
    tt__encoder_free(&e, true);
    return to == rpc->id ? TT_OK : status;
}

/* Reply with this thread's last error. */
static void reply_error(tt_rpc_call *call) {
    tt__rpc_lock(call->rpc);
    call->stage = CALL_REPLIES;
    if (!call->lost)
        tt_ignore(tt__served_refuse(call->rpc, call->from, call->view.header.id,
                                    tt_last_status() ? tt_last_status() : TT_ERR_STATE));
    tt__rpc_notice(call->rpc);
    tt__rpc_unlock(call->rpc);
    tt__served_end(call);
}

/* Reply with a value. */
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
    bool waits = !status && e.part_count, lost = call->lost;
    tt__transfers_look(call->rpc);
    tt__rpc_notice(call->rpc);
    tt__rpc_unlock(call->rpc);
    tt__encoder_free(&e, status != TT_OK);
    if (status && !lost)
        reply_error(call);
    else if (!waits)
        tt__served_end(call);
}

/* Keep the result of a KEEP call for its reference. The reply only tells the caller that the call has ended. */
static void keep_result(tt_rpc_call *call, tt_status status) {
    static const tt_rpc_value none;
    tt_rpc_value kept = call->result;
    char text[TT__ERROR_TEXT_SIZE];
    call->result = tt_rpc_none();
    if (!status && !kept.owned) {
        tt_rpc_value given = kept;
        status = tt_rpc_value_copy(&kept, &given);
    }
    bool named = status && call->function; /* users of the reference learn which function was to make the value */
    snprintf(text, sizeof text, "%s%s%s", named ? call->function->name : "", named ? "(): " : "",
             status ? tt_last_error() : "");
    if (status)
        tt_rpc_value_free(&kept);
    tt__future_end(call->kept->value, status, text, status ? tt_rpc_none() : kept);
    reply_value(call, &none);
}

void tt__served_finish(tt_rpc_call *call, tt_status status) {
    if (call->kept)
        keep_result(call, status);
    else if (status)
        reply_error(call);
    else
        reply_value(call, &call->result);
}

/* Take the call that a link leads to, and free the link. NULL: the call was dropped, and is gone. tt__served_drop()
 * reads the link only with the lock, and only before CALL_RUNS is set here. */
static tt_rpc_call *take_later(later_link *link) {
    tt_rpc_call *call = atomic_exchange(&link->taken, true) ? NULL : link->call;
    if (call) {
        tt__rpc_lock(call->rpc);
        call->stage = CALL_RUNS;
        tt__rpc_unlock(call->rpc);
    }
    free(link);
    return call;
}

static void reply_later(tt_future *future, void *user) {
    later_link *link = user;
    tt_rpc_call *call = take_later(link);
    if (!call)
        return;
    tt_status status = tt_future_wait(future, 0); /* it is done */
    const tt_rpc_value *value = status ? NULL : tt_future_value(future);
    if (value && call->function)
        status =
            tt__signature_check_result(&call->function->signature, call->function->name, call->function->text, value);
    if (call->kept && !status)
        status = tt_rpc_value_copy(&call->result, value);
    if (status || call->kept)
        tt__served_finish(call, status);
    else
        reply_value(call, value);
}

static void run_dropped(tt_rpc *rpc, tt__rpc_due *due) {
    (void)rpc;
    free_call((tt_rpc_call *)(void *)due);
}

void tt__served_drop(tt_rpc *rpc, tt_rpc_call *call) {
    if (call->stage != CALL_LATER || atomic_exchange(&call->link->taken, true))
        return;
    unlist_call(rpc, call);
    tt__packet_free(rpc, call->packet);
    call->due.run = run_dropped;
    tt__rpc_due_add(rpc, &call->due);
}

void tt__served_follow(tt_rpc_call *call, tt_future *future) {
    tt_rpc *rpc = call->rpc;
    later_link *link = malloc(sizeof *link);
    if (!link) {
        tt__served_finish(call, tt__fail(TT_ERR_MEMORY, "no memory for a reply that comes later"));
        return;
    }
    *link = (later_link){.call = call};
    tt_future_share(future); /* the call may be dropped meanwhile */
    tt__rpc_lock(rpc);
    bool lost = call->lost;
    call->link = link;
    call->stage = lost ? CALL_RUNS : CALL_LATER;
    tt__served_on_thread(rpc, call, lost);
    tt__rpc_unlock(rpc);
    tt_status status = lost ? TT_ERR_PEER : tt__future_follow(future, reply_later, link);
    if (status) {
        if (take_later(link))
            tt__served_finish(call, lost ? tt__fail(TT_ERR_PEER, "the caller is lost") : status);
    }
    tt_future_free(future);
}
