/* Taking packets from the network, and handing each to the file that knows its kind. */
#include "rpc/rpc_state.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "rpc/calls/calling.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/served_call.h"
#include "rpc/functions/serving.h"
#include "rpc/leaving.h"
#include "rpc/references/references.h"
#include "rpc/threads/cycles.h"
#include "rpc/threads/waiting.h"
#include "rpc/values/packets_memory.h"

/* Take the credit that a worker gives for requests that it has begun. */
static tt_status take_credit(tt__rpc_peer *from, uint32_t credit) {
    if (credit > from->window_out)
        return tt__fail(TT_ERR_PROTOCOL, "it gave credit for %u bytes of requests, and %u were not begun", credit,
                        from->window_out);
    from->window_out -= credit;
    return TT_OK;
}

static tt_status fail_in_reserve(tt_rpc *rpc, const tt__rpc_peer *from, const tt__rpc_packet_view *view,
                                 const tt__rpc_packet *packet) {
    tt__rrefs_refuse(rpc, from->id, view, NULL);
    return tt__fail(TT_ERR_MEMORY, "worker %s has no memory for a packet of %zu bytes", rpc->name, packet->size);
}

/* Refuse a call for which there is no memory, with this thread's last error. A reference that the call was to make is
 * gone. */
static tt_status refuse_call_packet(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view,
                                    const tt__rpc_packet *packet) {
    if (view->header.kind == TT__RPC_KEEP && view->header.serial > from->last_serial)
        from->last_serial = view->header.serial;
    tt__rpc_give_credit(rpc, from, packet->size);
    return tt__served_refuse(rpc, from->id, view->header.id, TT_ERR_MEMORY);
}

static tt_status take_call_packet(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view,
                                  tt__rpc_packet *packet, bool *taken) {
    if (from->id != rpc->id) {
        from->window_in += (uint32_t)packet->size + TT__RPC_REQUEST_COST;
        if (from->window_in > TT__RPC_WINDOW)
            return tt__fail(TT_ERR_PROTOCOL, "it sent more than %d bytes of requests that have not begun",
                            TT__RPC_WINDOW);
    }
    from->calls_received++;
    rpc->served_ns = tt__now_ns();
    tt_status status =
        packet == rpc->reserve ? fail_in_reserve(rpc, from, view, packet) : tt__serve_begin(rpc, from, view, packet);
    *taken = !status;
    return status == TT_ERR_MEMORY && from->id != rpc->id ? refuse_call_packet(rpc, from, view, packet) : status;
}

/* Fail if the sender has given this worker up: its lose_sender() sends an error that belongs to no call. */
static tt_status check_given_up(const tt__rpc_packet_view *view) {
    tt_rpc_value said;
    tt__rpc_decoder decoder = {.view = view, .at = view->value, .end = view->value + view->header.value_bytes};
    if (view->header.kind != TT__RPC_ERROR || view->header.id)
        return TT_OK;
    TT__TRY(tt__decode_value(&decoder, &said));
    bool text = said.kind == TT_RPC_TEXT;
    if (!text)
        tt_rpc_value_free(&said);
    return tt__fail(TT_ERR_PEER, "it has given this worker up: %.300s", text ? (const char *)said.bytes.data : "?");
}

/* Carry out what a packet says. *taken: the packet belongs to a call now. */
static tt_status take_packet(tt_rpc *rpc, tt__rpc_peer *from, tt__rpc_packet *packet, bool *taken) {
    tt__rpc_packet_view view;
    *taken = false;
    TT__TRY(tt__packet_view(&view, packet->data, packet->size));
    TT__TRY(take_credit(from, view.header.credit));
    switch ((tt__rpc_packet_kind)view.header.kind) {
    case TT__RPC_CALL:
    case TT__RPC_KEEP:
    case TT__RPC_FETCH:
        return take_call_packet(rpc, from, &view, packet, taken);
    case TT__RPC_REPLY:
    case TT__RPC_ERROR:
        TT__TRY(check_given_up(&view));
        TT__TRY(tt__call_replied(rpc, from->id, &view, packet));
        *taken = true;
        return TT_OK;
    case TT__RPC_FORGET:
        tt__serve_forget(rpc, from->id, view.header.id);
        return TT_OK;
    case TT__RPC_HOLD:
    case TT__RPC_RELEASE:
        return tt__rref_told(rpc, from->id, &view);
    case TT__RPC_PROBE:
    case TT__RPC_PROBED:
        return tt__cycles_told(rpc, from, &view);
    case TT__RPC_SETTLE:
        return tt__rrefs_asked(rpc, from, view.header.id);
    case TT__RPC_SETTLED:
        return tt__rrefs_settled(rpc, from, view.header.id);
    case TT__RPC_LEAVING:
    case TT__RPC_WAVE:
    case TT__RPC_IDLE:
    case TT__RPC_END:
        return tt__leaving_told(rpc, from, &view.header);
    case TT__RPC_CREDIT:
    case TT__RPC_PACKET_KINDS:
        break;
    }
    return TT_OK;
}

/* Lose a worker whose packet could not be handled: one that breaks the protocol counts as lost, and harms nobody else.
 * It is told so, in an error that belongs to no call: it may have done nothing wrong, and wait for replies. */
static void lose_sender(tt_rpc *rpc, tt__rpc_peer *from, tt_status status) {
    tt__saved_error why;
    tt__error_save(&why);
    tt_ignore(tt__served_refuse(rpc, from->id, 0, status));
    tt__error_restore(&why);
    tt__rpc_lose(rpc, from);
}

/* Handle a packet. Fails only for a packet of this worker to itself. */
static tt_status deliver_packet(tt_rpc *rpc, tt__rpc_peer *from, tt__rpc_packet *packet) {
    bool taken = false;
    tt__saved_error before;
    tt__error_save(&before);
    tt_status status = from->lost ? TT_OK : take_packet(rpc, from, packet, &taken);
    if (!taken)
        tt__packet_free(rpc, packet);
    if (status && from->id == rpc->id)
        return status;
    if (status)
        lose_sender(rpc, from, status);
    tt__error_restore(&before);
    return TT_OK;
}

/* ---- from the network */

static tt__rpc_packet *packet_of(void *room) {
    return (tt__rpc_packet *)(void *)((char *)room - offsetof(tt__rpc_packet, data));
}

static void *packet_room(void *user, int peer, size_t bytes) {
    tt_rpc *rpc = user;
    tt__rpc_packet *packet = tt__packet_new(rpc, bytes);
    (void)peer;
    if (!packet && !rpc->reserve_used) {
        packet = rpc->reserve;
        packet->size = bytes;
        rpc->reserve_used = true;
    }
    return packet ? packet->data : NULL;
}

static void packet_take(void *user, int peer, void *room, size_t bytes) {
    tt_rpc *rpc = user;
    tt__rpc_packet *packet = packet_of(room);
    tt__saved_error before;
    (void)bytes;
    atomic_store_explicit(&rpc->came, tt__ticks(), memory_order_relaxed);
    tt__error_save(&before);
    tt__rpc_peer *from = tt__rpc_peer_of(rpc, peer);
    tt__error_restore(&before);
    if (from)
        tt_ignore(deliver_packet(rpc, from, packet));
    else
        tt__packet_free(rpc, packet);
    tt__rpc_notice(rpc);
}

static void packet_drop(void *user, void *room) { tt__packet_free(user, packet_of(room)); }

void tt__dispatch_begin(tt_rpc *rpc) {
    static const tt__packet_taker taker = {packet_room, packet_take, packet_drop};
    rpc->deliver = deliver_packet;
    tt__messages_take_packets(rpc->network->messages, &taker, rpc);
}
