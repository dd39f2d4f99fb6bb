#include "rpc/calling.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/in_callback.h"
#include "rpc/packets_memory.h"
#include "rpc/peers.h"
#include "rpc/recording.h"
#include "rpc/references.h"
#include "rpc/sending.h"
#include "rpc/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1, FIRST_OUTS = 64 };

/* How far a call is. */
typedef enum out_stage {
    OUT_WAITS,   /* for its reply */
    OUT_REPLIED, /* the packet has come */
    OUT_BUSY,    /* a thread reads it, without the lock */
    OUT_LANDS,   /* its parts come */
    OUT_FAILED   /* without a reply: status, why */
} out_stage;

typedef struct tt__rpc_out {
    tt__rpc_due due;
    uint32_t id, next_free; /* the latter while it is free */
    bool used, is_due;
    out_stage stage;
    int to;
    tt__rpc_packet_kind kind;
    char function[TT__RPC_FUNCTION_NAME];
    tt_future *future;
    tt_rref *rref;                   /* of FETCH and KEEP, a share */
    int64_t timeout_ms, deadline_ms; /* 0: none */
    uint32_t record;                 /* its number; 0: none */
    tt__rpc_transfer sends;
    tt__rpc_part *parts;
    uint8_t *apart;
    uint32_t part_count;

    tt_status status;
    char *why;
    tt__rpc_packet *reply;
    tt__rpc_packet_view view;
    tt_rref **refs;
    tt__rpc_transfer receives;
    tt__rpc_landing *landings;
    void *value_apart;
    bool value_read;
    tt_rpc_value value;
    struct tt_tensor ***tensors;
    uint32_t tensor_count;
} tt__rpc_out;

/* ---- the table of calls */

static tt_status outs_room(tt_rpc *rpc) {
    uint32_t room = rpc->out_room ? 2 * rpc->out_room : FIRST_OUTS;
    if (rpc->out_free < rpc->out_room)
        return TT_OK;
    if (room > INDEX_MASK + 1)
        return tt__fail(TT_ERR_MEMORY, "%u calls are under way: expected fewer at a time", rpc->out_room);
    tt__rpc_out **outs = realloc(rpc->outs, room * sizeof(tt__rpc_out *));
    if (!outs)
        return tt__fail(TT_ERR_MEMORY, "no memory for %u calls", room);
    rpc->outs = outs;
    for (uint32_t i = rpc->out_room; i < room; i++) {
        if (!(outs[i] = calloc(1, sizeof **outs)))
            return tt__fail(TT_ERR_MEMORY, "no memory for %u calls", room);
        outs[i]->id = i;
        outs[i]->next_free = i + 1;
        rpc->out_room = i + 1;
    }
    return TT_OK;
}

/* Take a place for a call; its id differs from that of the last one there. NULL, recorded. */
static tt__rpc_out *take_out_place(tt_rpc *rpc) {
    if (outs_room(rpc))
        return NULL;
    tt__rpc_out *out = rpc->outs[rpc->out_free];
    uint32_t id = out->id + INDEX_MASK + 1;
    rpc->out_free = out->next_free;
    if (!id)
        id = INDEX_MASK + 1; /* of the first place: no id is 0 */
    memset(out, 0, sizeof *out);
    out->id = id;
    out->used = true;
    return out;
}

static tt__rpc_out *find_out(const tt_rpc *rpc, uint32_t id, int from) {
    uint32_t index = id & INDEX_MASK;
    tt__rpc_out *out = index < rpc->out_room ? rpc->outs[index] : NULL;
    return out && out->used && out->id == id && out->to == from ? out : NULL;
}

/* End what of it is under way, and free its place. */
static void give_out_back(tt_rpc *rpc, tt__rpc_out *out) {
    tt__rpc_peer *peer = tt__rpc_peer_of(rpc, out->to);
    tt__transfer_end(rpc, &out->sends);
    tt__transfer_end(rpc, &out->receives);
    if (peer)
        peer->calls_out--;
    rpc->counters.calls--;
    out->used = false;
    out->next_free = rpc->out_free;
    rpc->out_free = out->id & INDEX_MASK;
    if (rpc->sleepers && rpc->leaving && !rpc->counters.calls && (rpc->asked_wave || rpc->network->comes_and_goes))
        pthread_cond_broadcast(&rpc->changed);
}

static void out_becomes_due(tt_rpc *rpc, tt__rpc_out *out) {
    if (out->is_due)
        return;
    out->is_due = true;
    tt__rpc_due_add(rpc, &out->due);
}

/* ---- the reply, without the lock */

/* Release what the call borrowed and made. */
static void free_out_parts(tt__rpc_out *out) {
    for (uint32_t i = 0; i < out->part_count; i++) {
        if (out->parts[i].keep)
            tt__rpc_tensor_hooks_of()->release(out->parts[i].keep);
        free(out->parts[i].copy);
    }
    for (uint32_t i = 0; out->refs && i < out->view.header.refs; i++)
        tt_rref_free(out->refs[i]);
    free(out->parts);
    free(out->apart);
    free(out->refs);
    free(out->landings);
    free(out->value_apart);
    free(out->tensors);
    free(out->why);
    tt_rref_free(out->rref);
}

/* "worker1 (id 1), add(): TEXT" */
static char *out_text(tt_rpc *rpc, const tt__rpc_out *out, const char *said) {
    char who[TT__RPC_WHO_SIZE];
    tt__rpc_lock(rpc);
    tt__rpc_who(rpc, out->to, who);
    tt__rpc_unlock(rpc);
    size_t size = strlen(who) + strlen(said) + TT__RPC_FUNCTION_NAME + 16;
    char *text = malloc(size);
    if (text && *out->function)
        snprintf(text, size, "%s, %s(): %s", who, out->function, said);
    else if (text)
        snprintf(text, size, "%s: %s", who, said);
    return text;
}

static void end_out(tt_rpc *rpc, tt__rpc_out *out, tt_status status, const char *text, tt_rpc_value value) {
    tt__rpc_lock(rpc);
    tt__rpc_out copy = *out;
    tt__recording_done(rpc, out->record, status, out->receives.count);
    give_out_back(rpc, out);
    tt__packet_free(rpc, copy.reply);
    tt__rpc_unlock(rpc);
    free_out_parts(&copy);
    if (copy.future)
        tt__future_end(copy.future, status, text, value);
    else
        tt_rpc_value_free(&value);
    tt_future_free(copy.future);
}

static void fail_out(tt_rpc *rpc, tt__rpc_out *out) {
    tt_status status = tt_last_status();
    char text[TT__ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt_rpc_value_free(&out->value);
    end_out(rpc, out, status, text, tt_rpc_none());
}

/* The error that the other worker sent. */
static void end_with_its_error(tt_rpc *rpc, tt__rpc_out *out) {
    tt_status status = (tt_status)out->view.header.flags;
    tt__rpc_decoder decoder = {
        .view = &out->view, .at = out->view.value, .end = out->view.value + out->view.header.value_bytes, .own = true};
    tt_rpc_value said;
    if (tt__decode_value(&decoder, &said) || said.kind != TT_RPC_TEXT || !strcmp(tt_status_name(status), "TT_ERR_?") ||
        !status) {
        tt_rpc_value_free(&said);
        tt__fail(TT_ERR_PROTOCOL, "worker %d sent an error that is none", out->to);
        fail_out(rpc, out);
        return;
    }
    char *text = out_text(rpc, out, said.bytes.data);
    end_out(rpc, out, status, text ? text : said.bytes.data, tt_rpc_none());
    free(text);
    tt_rpc_value_free(&said);
}

static tt_status read_out_value(tt__rpc_out *out, const uint8_t *at, size_t bytes) {
    tt__rpc_decoder decoder = {
        .view = &out->view, .at = at, .end = at + bytes, .own = true, .refs = out->refs, .landings = out->landings};
    tt_status status = tt__decode_value(&decoder, &out->value);
    out->tensors = decoder.tensors;
    out->tensor_count = decoder.tensor_count;
    out->value_read = true;
    return status;
}

/* Begin to receive parts `from` to `end`. */
static tt_status receive_out_parts(tt_rpc *rpc, tt__rpc_out *out, uint32_t from, uint32_t end) {
    TT__TRY(tt__transfer_make(&out->receives, end - from));
    for (uint32_t i = from; i < end; i++) {
        if (!out->landings[i].data && out->landings[i].bytes)
            return tt__fail(TT_ERR_PROTOCOL, "worker %d sends a part that its value does not have", out->to);
        tt__transfer_part(&out->receives, i - from, out->to, out->id, true, out->landings[i].data,
                          (size_t)out->landings[i].bytes);
        out->receives.messages[i - from].key.step = 2 * i + 1;
    }
    out->receives.due = &out->due;
    tt__rpc_lock(rpc);
    const tt__rpc_peer *peer = rpc->peers[out->to];
    tt_status status = peer->lost ? tt__rpc_fail_lost(peer) : rpc->ended ? tt__fail(rpc->ended, "it was shut down") : 0;
    if (!status) {
        out->stage = OUT_LANDS;
        tt__transfer_begin(rpc, &out->receives, true);
        tt__transfers_look(rpc);
        tt__rpc_notice(rpc);
    }
    tt__rpc_unlock(rpc);
    return status;
}

/* The value is whole. */
static tt_status finish_out_value(tt_rpc *rpc, tt__rpc_out *out) {
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    const tt__rpc_header *header = &out->view.header;
    for (uint32_t i = 0; out->landings && i < header->parts; i++)
        if (out->landings[i].tensor)
            TT__TRY(hooks->made(out->landings[i].tensor, &out->landings[i].form));
    if (!header->message || !out->tensor_count)
        return TT_OK;
    struct tt_tensor **tensors = calloc(out->tensor_count, sizeof *tensors);
    if (!tensors)
        return tt__fail(TT_ERR_MEMORY, "no memory for the tensors of a reply");
    for (uint32_t i = 0; i < out->tensor_count; i++)
        tensors[i] = *out->tensors[i];
    tt_status status =
        hooks->received(rpc, out->to, &(tt__rpc_context){header->context, header->message}, tensors, out->tensor_count);
    for (uint32_t i = 0; i < out->tensor_count; i++)
        *out->tensors[i] = tensors[i];
    free(tensors);
    return status;
}

/* Read the value of the packet, or receive it first, where it lies apart. */
static tt_status begin_out_value(tt_rpc *rpc, tt__rpc_out *out, bool *waits) {
    const tt__rpc_header *header = &out->view.header;
    bool apart = header->flags & TT__RPC_VALUE_APART;
    *waits = true;
    uint64_t all = 0;
    for (uint32_t i = 0; i < header->parts; i++) {
        uint64_t bytes = tt__packet_part_bytes(&out->view, i);
        all = bytes > UINT64_MAX - all ? UINT64_MAX : all + bytes;
    }
    if (header->parts && all > tt__rpc_machine_memory())
        return tt__fail(TT_ERR_MEMORY, "a reply of %llu bytes, which is more than this machine's memory",
                        (unsigned long long)all);
    if (header->parts && !(out->landings = calloc(header->parts, sizeof *out->landings)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %d parts of a reply", header->parts);
    if (apart) {
        uint32_t last = header->parts - 1u;
        tt__rpc_landing *landing = &out->landings[last];
        landing->bytes = tt__packet_part_bytes(&out->view, last);
        if (landing->bytes > SIZE_MAX / 2 || !(out->value_apart = malloc(landing->bytes ? landing->bytes : 1)))
            return tt__fail(TT_ERR_MEMORY, "no memory for a value of %llu bytes", (unsigned long long)landing->bytes);
        landing->data = out->value_apart;
        return receive_out_parts(rpc, out, last, header->parts);
    }
    TT__TRY(read_out_value(out, out->view.value, header->value_bytes));
    *waits = header->parts;
    return header->parts ? receive_out_parts(rpc, out, 0, header->parts) : TT_OK;
}

/* Not all of a reply's parts have come: mostly as the worker is lost, which the link shows first. */
static tt_status fail_landing(tt_rpc *rpc, const tt__rpc_out *out, tt_status landed) {
    char who[TT__RPC_WHO_SIZE];
    tt__rpc_lock(rpc);
    tt__rpc_peer *peer = rpc->peers[out->to];
    if (!peer->lost && landed == TT_ERR_PEER && rpc->network->ops->check(rpc->network, out->to))
        tt__rpc_lose(rpc, peer);
    tt_status status =
        peer->lost ? tt__rpc_fail_lost(peer)
                   : tt__fail(landed, "worker %s did not send all of its reply", tt__rpc_who(rpc, out->to, who));
    tt__rpc_unlock(rpc);
    return status;
}

/* Parts have come. */
static tt_status out_landed(tt_rpc *rpc, tt__rpc_out *out, bool *waits) {
    uint32_t parts = out->view.header.parts;
    tt__rpc_lock(rpc);
    tt_status landed = tt__transfer_status(&out->receives);
    tt__transfer_end(rpc, &out->receives);
    tt__rpc_unlock(rpc);
    *waits = false;
    if (landed)
        return fail_landing(rpc, out, landed);
    if (out->value_read)
        return TT_OK;
    TT__TRY(read_out_value(out, out->value_apart, (size_t)out->landings[parts - 1].bytes));
    *waits = parts > 1;
    return parts > 1 ? receive_out_parts(rpc, out, 0, parts - 1) : TT_OK;
}

/* Go on with a call whose reply, or end, has come. */
static void run_out(tt_rpc *rpc, tt__rpc_due *due) {
    tt__rpc_out *out = (tt__rpc_out *)(void *)due;
    bool waits = false;
    tt_status status = TT_OK;
    tt__rpc_lock(rpc);
    out_stage stage = out->stage;
    out->is_due = false;
    out->stage = OUT_BUSY;
    if (stage == OUT_FAILED)
        tt__transfer_end(rpc, &out->receives); /* into memory of the value */
    tt__rpc_unlock(rpc);
    if (stage == OUT_FAILED) {
        tt_rpc_value_free(&out->value);
        char *why = out->why;
        out->why = NULL;
        end_out(rpc, out, out->status, why, tt_rpc_none());
        free(why);
        return;
    }
    if (stage == OUT_REPLIED && out->view.header.kind == TT__RPC_ERROR) {
        end_with_its_error(rpc, out);
        return;
    }
    status = stage == OUT_REPLIED ? begin_out_value(rpc, out, &waits) : out_landed(rpc, out, &waits);
    if (!status && waits)
        return;
    if (!status)
        status = finish_out_value(rpc, out);
    if (status) {
        fail_out(rpc, out);
        return;
    }
    tt_rpc_value value = out->value;
    out->value = tt_rpc_none();
    end_out(rpc, out, TT_OK, NULL, value);
}

/* ---- what happens to calls; the lock is held */

static void refuse_reply(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet) {
    if (view->header.parts)
        tt_ignore(tt__rpc_send_header(rpc, from, (tt__rpc_header){.kind = TT__RPC_FORGET, .id = view->header.id}));
    tt__packet_free(rpc, packet);
}

tt_status tt__call_replied(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt__rpc_packet *packet) {
    tt__rpc_out *out = find_out(rpc, view->header.id, from);
    tt_rref **refs = view->header.refs ? calloc(view->header.refs, sizeof(tt_rref *)) : NULL;
    if (view->header.refs) { /* counted even if nobody waits: its giver has counted it */
        if (!refs)
            return tt__fail(TT_ERR_MEMORY, "no memory for %d references", view->header.refs);
        tt_status status = tt__rrefs_received(rpc, from, view, refs);
        if (status == TT_ERR_NOT_FOUND && out && out->stage == OUT_WAITS) {
            out->status = status;
            out->why = strdup(tt_last_error());
            out->stage = OUT_FAILED;
            out_becomes_due(rpc, out);
        }
        if (status) {
            free(refs);
            if (status == TT_ERR_NOT_FOUND)
                refuse_reply(rpc, from, view, packet);
            return status == TT_ERR_NOT_FOUND ? TT_OK : status;
        }
    }
    if (!out || out->stage != OUT_WAITS) { /* its time was over */
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
    out_becomes_due(rpc, out);
    return TT_OK;
}

static void fail_waiting_out(tt_rpc *rpc, tt__rpc_out *out, tt_status status, const char *why) {
    if ((out->stage != OUT_WAITS && out->stage != OUT_LANDS) || out->is_due)
        return;
    if (out->stage == OUT_WAITS && status != TT_ERR_PEER) /* if it has not begun there, it need not */
        tt_ignore(tt__rpc_send_header(rpc, out->to, (tt__rpc_header){.kind = TT__RPC_FORGET, .id = out->id}));
    out->stage = OUT_FAILED;
    out->status = status;
    out->why = why ? strdup(why) : NULL;
    out_becomes_due(rpc, out);
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
        if (!out->used || !out->deadline_ms || (out->stage != OUT_WAITS && out->stage != OUT_LANDS))
            continue;
        if (now_ms >= out->deadline_ms) {
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
    tt__rpc_out *out = find_out(rpc, id, to);
    if (out)
        fail_waiting_out(rpc, out, status, why);
}

/* ---- making calls */

static bool may_queue(void *arg) {
    const tt__rpc_peer *peer = arg;
    return peer->waiting_bytes < TT__RPC_QUEUED_MAX || peer->lost;
}

/* Can a call be made to it now? Waits for room among those that wait, except in a callback. */
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

/* Take what the encoder has made for parts into the call. */
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

/* The call could not be sent: undo it. */
static void undo_out(tt_rpc *rpc, tt__rpc_out *out) {
    if (out->rref && out->kind == TT__RPC_KEEP)
        tt__rref_unmake(rpc, out->rref);
    else if (out->rref)
        tt__rref_drop(rpc, out->rref);
    out->part_count = 0; /* the encoder still has them */
    tt_future_free(out->future);
    tt__recording_done(rpc, out->record, TT_ERR_STATE, true);
    give_out_back(rpc, out);
}

static tt_status begin_locked(tt_rpc *rpc, const tt__rpc_request *request, tt__rpc_encoder *e,
                              const tt__rpc_context *context, tt_future **out_future, tt_rref **kept) {
    TT__TRY(check_callee(rpc, request->to));
    tt__rpc_out *out = take_out_place(rpc);
    if (!out)
        return tt_last_status();
    out->due.run = run_out;
    out->kind = request->kind;
    out->to = request->to;
    snprintf(out->function, sizeof out->function, "%s", request->function ? request->function : "");
    out->record = tt__recording_call(rpc, request, e);
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

static tt__rpc_ref *refs_of(const tt__rpc_encoder *e, const tt__rpc_request *request, tt__rpc_ref *few, uint32_t room) {
    tt__rpc_ref *refs = e->ref_count <= room ? few : calloc(e->ref_count, sizeof *refs);
    for (uint32_t i = 0; refs && i < e->ref_count; i++)
        refs[i] = e->refs[i]->ref;
    (void)request;
    return refs;
}

static tt_status encode_request(tt__rpc_encoder *e, const tt__rpc_request *request) {
    tt__rpc_ref few[8], *refs;
    tt__encoder_begin(e, request->function ? request->function : "");
    e->copies_bytes = request->kind == TT__RPC_KEEP;
    if (request->kind == TT__RPC_FETCH) {
        tt_rpc_value what = tt_rpc_rref(request->fetched);
        tt__encoder_values(e, NULL, &what, 1);
    } else {
        tt__encoder_values(e, request->first, request->args.values, request->args.count);
    }
    if (e->status)
        return e->status;
    if (!(refs = refs_of(e, request, few, 8)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %u references", e->ref_count);
    tt_status status = tt__encoder_finish(e, refs);
    if (refs != few)
        free(refs);
    return status;
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
