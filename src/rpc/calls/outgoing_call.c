/* The calls that this worker has made: their table, and reading their replies. */
#include "rpc/calls/outgoing_call.h"

#include "base/error.h"
#include "rpc/calls/sending.h"
#include "rpc/references/references.h"
#include "rpc/threads/waiting.h"
#include "rpc/values/landing_memory.h"
#include "rpc/values/packets_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----
 * An id is the index of a place, and above it how often the place was used. */

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1, FIRST_OUTS = 64 };

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

tt__rpc_out *tt__out_take(tt_rpc *rpc) {
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

tt__rpc_out *tt__out_find(const tt_rpc *rpc, uint32_t id, int to) {
    uint32_t index = id & INDEX_MASK;
    tt__rpc_out *out = index < rpc->out_room ? rpc->outs[index] : NULL;
    return out && out->used && out->id == id && out->to == to ? out : NULL;
}

void tt__out_give_back(tt_rpc *rpc, tt__rpc_out *out) {
    tt__rpc_peer *peer = tt__rpc_peer_of(rpc, out->to);
    tt__transfer_forget(rpc, out->to, &out->sends);
    tt__transfer_end(rpc, &out->sends);
    tt__transfer_end(rpc, &out->receives);
    if (peer)
        peer->calls_out--;
    rpc->counters.calls--;
    out->used = false;
    out->next_free = rpc->out_free;
    rpc->out_free = out->id & INDEX_MASK;
    if (rpc->sleepers && rpc->leaving && !rpc->counters.calls && (rpc->waves_asked || rpc->network->comes_and_goes))
        pthread_cond_broadcast(&rpc->changed);
}

void tt__out_becomes_due(tt_rpc *rpc, tt__rpc_out *out) {
    if (out->is_due)
        return;
    out->is_due = true;
    tt__rpc_due_add(rpc, &out->due);
}

/* ---- replies; the lock is not held */

/* Free what the call has, except its value and its future. */
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
    tt__landing_give(out->value_apart);
    free(out->tensors);
    free(out->why);
    tt_rref_free(out->rref);
}

/* Return "worker1 (id 1), add(): TEXT", the caller's to free(). NULL: no memory. */
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
    tt__out_give_back(rpc, out);
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
    if (out->view.header.parts) { /* they wait to be asked for */
        tt__rpc_lock(rpc);
        tt_ignore(tt__rpc_send_header(rpc, out->to, (tt__rpc_header){.kind = TT__RPC_FORGET, .id = out->id}));
        tt__rpc_unlock(rpc);
    }
    tt_rpc_value_free(&out->value);
    end_out(rpc, out, status, text, tt_rpc_none());
}

/* End a call with the error that the callee has sent. */
static void end_with_its_error(tt_rpc *rpc, tt__rpc_out *out) {
    tt_status status = (tt_status)out->view.header.flags;
    tt__rpc_decoder decoder = {
        .view = &out->view, .at = out->view.value, .end = out->view.value + out->view.header.value_bytes};
    tt_rpc_value said;
    if (tt__decode_value(&decoder, &said) || said.kind != TT_RPC_TEXT || !strcmp(tt_status_name(status), "TT_ERR_?") ||
        !status) {
        tt_rpc_value_free(&said);
        tt__fail(TT_ERR_PROTOCOL, "worker %d sent an error without a text or with an unknown status", out->to);
        fail_out(rpc, out);
        return;
    }
    char *text = out_text(rpc, out, said.bytes.data), start[200];
    snprintf(start, sizeof start, "%s", (const char *)said.bytes.data);
    end_out(rpc, out, status, text ? text : start, tt_rpc_none());
    free(text);
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

/* Read the value in the packet, or receive it if it is a part. *waits: parts are being received. */
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
        if (landing->bytes > SIZE_MAX / 2 || !(out->value_apart = tt__landing_take((size_t)landing->bytes)))
            return tt__fail(TT_ERR_MEMORY, "no memory for a value of %llu bytes", (unsigned long long)landing->bytes);
        landing->data = out->value_apart;
        return receive_out_parts(rpc, out, last, header->parts);
    }
    TT__TRY(read_out_value(out, out->view.value, header->value_bytes));
    *waits = header->parts;
    return header->parts ? receive_out_parts(rpc, out, 0, header->parts) : TT_OK;
}

/* Fail a call whose reply's parts did not all come. Mostly the worker is lost, and its link shows that first. */
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

/* Go on after parts of the reply have been received, or failed. */
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

void tt__out_run(tt_rpc *rpc, tt__rpc_due *due) {
    tt__rpc_out *out = (tt__rpc_out *)(void *)due;
    bool waits = false;
    tt_status status = TT_OK;
    tt__rpc_lock(rpc);
    out_stage stage = out->stage;
    out->is_due = false;
    out->stage = OUT_BUSY;
    if (stage == OUT_FAILED)
        tt__transfer_end(rpc, &out->receives); /* it receives into the value's memory */
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
        status = tt__decoded_finish(rpc, out->to, &out->view.header, out->landings, out->tensors, out->tensor_count,
                                    "reply");
    if (status) {
        fail_out(rpc, out);
        return;
    }
    tt_rpc_value value = out->value;
    out->value = tt_rpc_none();
    end_out(rpc, out, TT_OK, NULL, value);
}
