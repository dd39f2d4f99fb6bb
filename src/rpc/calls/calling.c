/* Making calls, and what ends them. */
#include "rpc/calls/calling.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/in_callback.h"
#include "rpc/calls/outgoing_call.h"
#include "rpc/calls/sending.h"
#include "rpc/references/references.h"
#include "rpc/rpc_state.h"
#include "rpc/threads/waiting.h"
#include "rpc/values/packets_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of calls; the lock is held */

/* Drop a reply that nobody waits for, and stop its parts. */
static void refuse_reply(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet) {
    if (view->header.parts)
        tt_ignore(tt__rpc_send_header(rpc, from, (tt__rpc_header){.kind = TT__RPC_FORGET, .id = view->header.id}));
    tt__packet_free(rpc, packet);
}

/* Take the references of a reply, also if nobody waits for it: its giver has counted them. */
static tt_status take_reply_refs(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, const tt__rpc_packet *packet,
                                 tt_rref ***out) {
    uint32_t count = view->header.refs;
    if (packet == rpc->reserve) {
        tt__rrefs_refuse(rpc, from, view, NULL);
        return tt__fail(TT_ERR_MEMORY, "no memory for a reply of %zu bytes", packet->size);
    }
    tt_rref **refs = *out = count ? calloc(count, sizeof(tt_rref *)) : NULL;
    if (!count)
        return TT_OK;
    tt_status status = refs ? tt__rrefs_received(rpc, from, view, refs)
                            : tt__fail(TT_ERR_MEMORY, "no memory for %u references", count);
    if (!status)
        return TT_OK;
    tt__rrefs_refuse(rpc, from, view, refs);
    free(refs);
    *out = NULL;
    return status;
}

/* Fail the call of a reply whose references can't be taken. */
static tt_status fail_reply(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet,
                            tt_status status) {
    tt__rpc_out *out = tt__out_find(rpc, view->header.id, from);
    if (status != TT_ERR_NOT_FOUND && status != TT_ERR_MEMORY)
        return status;
    if (out && out->stage == OUT_WAITS) {
        out->status = status;
        out->why = strdup(tt_last_error());
        out->stage = OUT_FAILED;
        tt__out_becomes_due(rpc, out);
    }
    refuse_reply(rpc, from, view, packet);
    return TT_OK;
}

tt_status tt__call_replied(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet) {
    tt__rpc_out *out = tt__out_find(rpc, view->header.id, from);
    tt_rref **refs = NULL;
    tt_status status = take_reply_refs(rpc, from, view, packet, &refs);
    if (status)
        return fail_reply(rpc, from, view, packet, status);
    if (!out || out->stage != OUT_WAITS) { /* its timeout has passed */
        for (uint32_t i = 0; i < view->header.refs; i++)
            tt__rref_drop(rpc, refs[i]);
        free(refs);
        refuse_reply(rpc, from, view, packet);
        return TT_OK;
    }
    out->stage = OUT_REPLIED;
    out->reply = packet;
    out->view = *view;
    out->refs = refs;
    tt__out_becomes_due(rpc, out);
    return TT_OK;
}

static void fail_waiting_out(tt_rpc *rpc, tt__rpc_out *out, tt_status status, const char *why) {
    if ((out->stage != OUT_WAITS && out->stage != OUT_LANDS) || out->is_due)
        return;
    if (status != TT_ERR_PEER) /* a call that has not begun is dropped there; parts are not asked for any more */
        tt_ignore(tt__rpc_send_header(rpc, out->to, (tt__rpc_header){.kind = TT__RPC_FORGET, .id = out->id}));
    bool lands = out->stage == OUT_LANDS;
    out->stage = OUT_FAILED;
    out->status = status;
    out->why = why ? strdup(why) : NULL;
    if (!lands) {
        tt__out_becomes_due(rpc, out);
        return;
    }
    tt__transfer_cancel(rpc, &out->receives, TT_ERR_ABORTED); /* it becomes due with its parts, or is already */
    tt__transfers_look(rpc);
}

void tt__calls_lost(tt_rpc *rpc, tt__rpc_peer *peer) {
    for (uint32_t i = 0; i < rpc->out_room && peer->calls_out; i++)
        if (rpc->outs[i]->used && rpc->outs[i]->to == peer->id)
            fail_waiting_out(rpc, rpc->outs[i], peer->lost, peer->why);
}

void tt__calls_end(tt_rpc *rpc, const char *why) {
    for (uint32_t i = 0; i < rpc->out_room; i++)
        if (rpc->outs[i]->used)
            fail_waiting_out(rpc, rpc->outs[i], TT_ERR_STATE, why);
}

void tt__calls_expire(tt_rpc *rpc, int64_t now_ms) {
    int64_t next = 0;
    for (uint32_t i = 0; i < rpc->out_room; i++) {
        tt__rpc_out *out = rpc->outs[i];
        bool waits = out->stage == OUT_WAITS || out->stage == OUT_LANDS;
        if (!out->used || !out->deadline_ms || out->stage == OUT_FAILED)
            continue;
        if (now_ms >= out->deadline_ms && !waits) { /* a thread reads its reply, of which parts may be yet to come */
            next = now_ms + 1;
        } else if (now_ms >= out->deadline_ms) {
            char who[TT__RPC_WHO_SIZE], why[TT__RPC_WHO_SIZE + TT__RPC_FUNCTION_NAME + 80];
            snprintf(why, sizeof why, "%s did not reply to %s%s within %lld ms", tt__rpc_who(rpc, out->to, who),
                     *out->function ? out->function : "the fetch of a reference", *out->function ? "()" : "",
                     (long long)out->timeout_ms);
            fail_waiting_out(rpc, out, TT_ERR_TIMEOUT, why);
        } else if (!next || out->deadline_ms < next) {
            next = out->deadline_ms;
        }
    }
    rpc->next_deadline_ms = next;
}

bool tt__call_of_future(const tt_rpc *rpc, const tt_future *future, int *to, uint32_t *id) {
    for (uint32_t i = 0; i < rpc->out_room; i++) {
        const tt__rpc_out *out = rpc->outs[i];
        if (out->used && out->future == future && out->stage == OUT_WAITS) {
            *to = out->to;
            *id = out->id;
            return true;
        }
    }
    return false;
}

void tt__call_fail(tt_rpc *rpc, int to, uint32_t id, tt_status status, const char *why) {
    tt__rpc_out *out = tt__out_find(rpc, id, to);
    if (out)
        fail_waiting_out(rpc, out, status, why);
}

/* ---- making calls */

static bool may_queue(void *arg) {
    const tt__rpc_peer *peer = arg;
    return peer->waiting_bytes < TT__RPC_QUEUED_MAX || peer->lost;
}

/* Check that calls can be made to a worker, and wait while too many bytes of earlier ones are unsent, except in a
 * callback. */
static tt_status check_callee(tt_rpc *rpc, int to) {
    if (rpc->ended)
        return tt__fail(TT_ERR_STATE, "worker %s was shut down: it can't make calls any more", rpc->name);
    tt__rpc_peer *peer = tt__rpc_peer_of(rpc, to);
    if (!peer)
        return tt_last_status();
    if (!may_queue(peer) && !tt__in_callback())
        tt__rpc_wait_for(rpc, may_queue, peer, 0);
    return peer->lost ? tt__rpc_fail_lost(peer) : TT_OK;
}

static void note_deadline(tt_rpc *rpc, tt__rpc_out *out, int64_t timeout_ms) {
    out->timeout_ms = timeout_ms ? timeout_ms : rpc->timeout_ms;
    if (out->timeout_ms <= 0)
        return;
    out->deadline_ms = tt__deadline_ms(out->timeout_ms);
    if (!rpc->next_deadline_ms || out->deadline_ms < rpc->next_deadline_ms) {
        rpc->next_deadline_ms = out->deadline_ms;
        tt__rpc_keeper_call(rpc);
    }
}

/* Move the encoder's parts into the call. */
static tt_status take_call_parts(tt__rpc_out *out, tt__rpc_encoder *e) {
    TT__TRY(tt__transfer_make(&out->sends, e->part_count));
    for (uint32_t i = 0; i < e->part_count; i++)
        tt__transfer_part(&out->sends, i, out->to, out->id, false, e->parts[i].data, (size_t)e->parts[i].bytes);
    out->parts = e->parts;
    out->part_count = e->part_count;
    out->apart = e->apart;
    return TT_OK;
}

static void fill_call_header(tt__rpc_encoder *e, const tt__rpc_out *out, const tt__rpc_context *context) {
    tt__rpc_header *header = tt__encoder_header(e);
    header->kind = (uint8_t)out->kind;
    header->id = out->id;
    header->serial = out->kind == TT__RPC_KEEP ? out->rref->ref.serial : 0;
    header->context = context->context;
    header->message = context->message;
}

/* Send what has been encoded, as a new call. The lock is held. */
static tt_status send_call(tt_rpc *rpc, tt__rpc_out *out, const tt__rpc_request *request, tt__rpc_encoder *e,
                           const tt__rpc_context *context) {
    if (request->kind == TT__RPC_KEEP && !(out->rref = tt__rref_make(rpc, out->to)))
        return tt_last_status();
    if (request->kind == TT__RPC_FETCH) {
        out->rref = request->fetched;
        out->rref->shares++;
    }
    bool gives = request->kind != TT__RPC_FETCH && e->ref_count;
    fill_call_header(e, out, context);
    tt_status status = take_call_parts(out, e);
    if (!status && gives)
        status = tt__rrefs_given(rpc, out->to, e->refs, e->ref_count);
    if (!status) {
        status = tt__rpc_send(rpc, out->to, e->data, e->size, e->part_count ? &out->sends : NULL);
        if (status && gives)
            tt__rrefs_not_given(rpc, out->to, e->refs, e->ref_count);
    }
    return status;
}

/* Undo a call that could not be sent. */
static void undo_out(tt_rpc *rpc, tt__rpc_out *out) {
    if (out->rref && out->kind == TT__RPC_KEEP)
        tt__rref_unmake(rpc, out->rref);
    else if (out->rref)
        tt__rref_drop(rpc, out->rref);
    out->part_count = 0; /* the encoder still has them */
    tt_future_free(out->future);
    tt__recording_done(rpc, out->record, TT_ERR_STATE, true);
    tt__out_give_back(rpc, out);
}

static tt_status begin_locked(tt_rpc *rpc, const tt__rpc_request *request, tt__rpc_encoder *e,
                              const tt__rpc_context *context, tt_future **out_future, tt_rref **kept) {
    TT__TRY(check_callee(rpc, request->to));
    tt__rpc_out *out = tt__out_take(rpc);
    if (!out)
        return tt_last_status();
    out->due.run = tt__out_run;
    out->kind = request->kind;
    out->to = request->to;
    snprintf(out->function, sizeof out->function, "%s", request->function ? request->function : "");
    out->record = tt__recording_call(rpc, request->kind, request->known, request->to, e);
    rpc->counters.calls++;
    rpc->counters.calls_made++;
    rpc->peers[out->to]->calls_out++;
    tt_status status = TT_OK;
    if (out_future && !(out->future = tt__future_new_driven(&rpc->driver)))
        status = tt_last_status();
    if (!status)
        status = send_call(rpc, out, request, e, context);
    if (status) {
        undo_out(rpc, out);
        return status;
    }
    note_deadline(rpc, out, request->timeout_ms);
    if (out_future)
        *out_future = tt_future_share(out->future);
    if (kept) {
        out->rref->shares++;
        *kept = out->rref;
    }
    return TT_OK;
}

static tt_status encode_request(tt__rpc_encoder *e, const tt__rpc_request *request) {
    tt__encoder_begin(e, request->function ? request->function : "");
    e->copies_bytes = request->kind == TT__RPC_KEEP;
    if (request->kind == TT__RPC_FETCH) {
        tt_rpc_value what = tt_rpc_rref(request->fetched);
        tt__encoder_values(e, NULL, &what, 1);
    } else {
        tt__encoder_values(e, request->first, request->args.values, request->args.count);
    }
    return tt__rrefs_finish(e);
}

tt_status tt__call_begin(tt_rpc *rpc, const tt__rpc_request *request, tt_future **out, tt_rref **kept) {
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    tt__rpc_context context = {.context = hooks ? hooks->current() : 0};
    tt__rpc_encoder e;
    tt_status status = encode_request(&e, request);
    if (!status && context.context && e.requires_grad)
        status = hooks->sending(rpc, request->to, &context, e.tensors, e.tensor_count);
    if (!status) {
        tt__rpc_lock(rpc);
        status = begin_locked(rpc, request, &e, &context, out, kept);
        tt__rpc_notice(rpc);
        tt__rpc_unlock(rpc);
    }
    tt__encoder_free(&e, status != TT_OK);
    return status;
}
