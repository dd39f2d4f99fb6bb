#include "rpc/calls/sending.h"

#include "base/error.h"
#include "rpc/values/packets_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- workers */

tt__rpc_peer *tt__rpc_peer_of(tt_rpc *rpc, int id) {
    if (id < 0 || id >= rpc->peer_room)
        return tt__fail_null(TT_ERR_NOT_FOUND, "there is no worker with the id %d", id);
    if (rpc->peers[id])
        return rpc->peers[id];
    tt__rpc_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for worker %d", id);
    peer->id = id;
    peer->waiting_end = &peer->waiting;
    if (id >= rpc->peer_end)
        rpc->peer_end = id + 1;
    return rpc->peers[id] = peer;
}

const char *tt__rpc_who(tt_rpc *rpc, int id, char text[TT__RPC_WHO_SIZE]) {
    const tt__rpc_peer *peer = id >= 0 && id < rpc->peer_room ? rpc->peers[id] : NULL;
    const char *name = id == rpc->id ? rpc->name : peer ? peer->name : "";
    if (*name)
        snprintf(text, TT__RPC_WHO_SIZE, "%s (id %d)", name, id);
    else
        snprintf(text, TT__RPC_WHO_SIZE, "with the id %d", id);
    return text;
}

tt_status tt__rpc_fail_lost(const tt__rpc_peer *peer) {
    return tt__fail(peer->lost, "%s", peer->why ? peer->why : "a worker was lost, and there is no memory to say how");
}

static void drop_waiting(tt_rpc *rpc, tt__rpc_peer *peer) {
    while (peer->waiting) {
        tt__rpc_waiting *waiting = peer->waiting;
        peer->waiting = waiting->next;
        /* the transfer will not begin, so what follows it is due now */
        if (waiting->transfer && waiting->transfer->due)
            tt__rpc_due_add(rpc, waiting->transfer->due);
        free(waiting);
    }
    peer->waiting_end = &peer->waiting;
    peer->waiting_bytes = 0;
}

void tt__rpc_lose(tt_rpc *rpc, tt__rpc_peer *peer) {
    char who[TT__RPC_WHO_SIZE];
    if (peer->lost)
        return;
    peer->lost = tt_last_status() ? tt_last_status() : TT_ERR_PEER;
    tt__rpc_who(rpc, peer->id, who);
    size_t room = strlen(who) + strlen(tt_last_error()) + 16;
    bool named = !strncmp(tt_last_error(), "worker ", 7);
    if ((peer->why = malloc(room)))
        snprintf(peer->why, room, "%s%s%s%s", named ? "" : "worker ", named ? "" : who, named ? "" : ": ",
                 tt_last_error());
    drop_waiting(rpc, peer);
    rpc->lost_untold++;
    tt__rpc_keeper_call(rpc);
}

/* ---- packets */

static bool is_request(const void *packet) {
    uint8_t kind = *(const uint8_t *)packet;
    return kind == TT__RPC_CALL || kind == TT__RPC_KEEP || kind == TT__RPC_FETCH;
}

/* May the packet overtake others that wait? Only if its order with requests and references does not matter. */
static bool overtakes(const void *packet) {
    tt__rpc_header header;
    memcpy(&header, packet, sizeof header);
    uint8_t kind = header.refs ? 0 : header.kind;
    return kind == TT__RPC_REPLY || kind == TT__RPC_ERROR || kind == TT__RPC_CREDIT;
}

static uint32_t request_cost(size_t size) { return (uint32_t)size + TT__RPC_REQUEST_COST; }

static bool window_has_room(const tt__rpc_peer *peer, size_t size) {
    return peer->window_out + request_cost(size) <= TT__RPC_WINDOW;
}

/* Deliver a packet of this worker to itself. */
static tt_status packet_to_self(tt_rpc *rpc, tt__rpc_peer *self, const void *packet, size_t size,
                                tt__rpc_transfer *transfer) {
    tt__rpc_packet *copy = tt__packet_new(rpc, size);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "no memory for a call of %zu bytes", size);
    memcpy(copy->data, packet, size);
    self->calls_sent += is_request(packet);
    TT__TRY(rpc->deliver(rpc, self, copy));
    if (transfer)
        tt__transfer_begin(rpc, transfer, false);
    return TT_OK;
}

static void unlist(tt_rpc *rpc, tt__rpc_transfer *transfer) {
    tt__rpc_transfer **at = &rpc->transfers;
    while (*at && *at != transfer)
        at = &(*at)->next;
    if (*at)
        *at = transfer->next;
    transfer->listed = false;
}

static void remove_due(tt_rpc *rpc, const tt__rpc_due *due) {
    tt__rpc_due_list all = {rpc->due.first, rpc->due.first ? rpc->due.end : &all.first};
    rpc->due = (tt__rpc_due_list){NULL, &rpc->due.first};
    for (tt__rpc_due *each; (each = tt__rpc_list_take(&all));)
        if (each != due)
            tt__rpc_due_add(rpc, each);
}

/* Take back a transfer whose packet could not be sent: nothing becomes due with it. */
static void take_back(tt_rpc *rpc, tt__rpc_transfer *transfer) {
    tt__transfer_cancel(rpc, transfer, TT_ERR_ABORTED);
    if (transfer->listed)
        unlist(rpc, transfer);
    else if (transfer->due) /* all of its messages failed while they were posted */
        remove_due(rpc, transfer->due);
}

/* Send a packet over its link. Its parts are posted before: the receiver asks for them once it has the packet, and a
 * question about a part that is not there yet would need memory. */
static tt_status packet_out(tt_rpc *rpc, tt__rpc_peer *peer, const void *packet, size_t size,
                            tt__rpc_transfer *transfer) {
    tt__rpc_header *header = (tt__rpc_header *)(uintptr_t)packet;
    if (peer->id == rpc->id)
        return packet_to_self(rpc, peer, packet, size, transfer);
    if (transfer)
        tt__transfer_begin(rpc, transfer, false);
    uint32_t credit = peer->credit;
    memcpy((uint8_t *)header + offsetof(tt__rpc_header, credit), &credit, sizeof credit);
    if (tt__packet_send(rpc->network->messages, peer->id, packet, size)) {
        tt_status status = rpc->network->ops->check(rpc->network, peer->id); /* may know more than the link */
        (void)status;
        tt__rpc_lose(rpc, peer);
        if (transfer)
            take_back(rpc, transfer);
        return tt__rpc_fail_lost(peer);
    }
    peer->credit = 0;
    if (is_request(packet)) {
        peer->window_out += request_cost(size);
        peer->calls_sent++;
    }
    return TT_OK;
}

static tt_status keep_packet(tt_rpc *rpc, tt__rpc_peer *peer, const void *packet, size_t size,
                             tt__rpc_transfer *transfer) {
    tt__rpc_waiting *waiting = malloc(sizeof *waiting + size);
    if (!waiting)
        return tt__fail(TT_ERR_MEMORY, "no memory for a packet of %zu bytes that waits to be sent", size);
    *waiting = (tt__rpc_waiting){.transfer = transfer, .request = is_request(packet), .size = size};
    memcpy(waiting->data, packet, size);
    *peer->waiting_end = waiting;
    peer->waiting_end = &waiting->next;
    peer->waiting_bytes += size;
    if (!peer->listed) {
        peer->listed = true;
        peer->next_waiting = rpc->waiting_peers;
        rpc->waiting_peers = peer;
    }
    return TT_OK;
}

/* Send the packets that wait for one worker, as far as link and window allow. */
static void send_waiting_to(tt_rpc *rpc, tt__rpc_peer *peer) {
    while (peer->waiting && !peer->lost) {
        tt__rpc_waiting *waiting = peer->waiting;
        tt__rpc_reach reach = rpc->network->ops->reach(rpc->network, peer->id);
        if (reach == TT__RPC_UNREACHABLE)
            tt__rpc_lose(rpc, peer);
        if (reach != TT__RPC_REACHED || (waiting->request && !window_has_room(peer, waiting->size)))
            return;
        peer->waiting = waiting->next;
        peer->waiting_bytes -= waiting->size;
        if (!peer->waiting)
            peer->waiting_end = &peer->waiting;
        tt_status status = packet_out(rpc, peer, waiting->data, waiting->size, waiting->transfer);
        if (status && waiting->transfer && waiting->transfer->due) /* the peer is lost */
            tt__rpc_due_add(rpc, waiting->transfer->due);
        free(waiting);
    }
}

void tt__rpc_send_waiting(tt_rpc *rpc) {
    tt__rpc_peer *all = rpc->waiting_peers;
    rpc->waiting_peers = NULL; /* packets that come while parts are posted may add others */
    while (all) {
        tt__rpc_peer *peer = all;
        all = peer->next_waiting;
        send_waiting_to(rpc, peer);
        if (!(peer->listed = peer->waiting != NULL))
            continue;
        peer->next_waiting = rpc->waiting_peers;
        rpc->waiting_peers = peer;
    }
}

tt_status tt__rpc_send(tt_rpc *rpc, int to, const void *packet, size_t size, tt__rpc_transfer *transfer) {
    tt__rpc_peer *peer = tt__rpc_peer_of(rpc, to);
    if (!peer)
        return tt_last_status();
    if (peer->lost)
        return tt__rpc_fail_lost(peer);
    tt__rpc_reach reach = rpc->network->ops->reach(rpc->network, to);
    if (reach == TT__RPC_UNREACHABLE) {
        tt__rpc_lose(rpc, peer);
        return tt__rpc_fail_lost(peer);
    }
    bool waits = to != rpc->id &&
                 ((peer->waiting && !overtakes(packet)) || (is_request(packet) && !window_has_room(peer, size)));
    if (waits || reach == TT__RPC_CONNECTING)
        return keep_packet(rpc, peer, packet, size, transfer);
    return packet_out(rpc, peer, packet, size, transfer);
}

tt_status tt__rpc_send_header(tt_rpc *rpc, int to, tt__rpc_header header) {
    return tt__rpc_send(rpc, to, &header, sizeof header, NULL);
}

tt_status tt__rpc_send_ref(tt_rpc *rpc, int to, tt__rpc_header header, tt__rpc_ref ref) {
    uint8_t packet[sizeof header + sizeof ref];
    header.refs = 1;
    memcpy(packet, &header, sizeof header);
    memcpy(packet + sizeof header, &ref, sizeof ref);
    return tt__rpc_send(rpc, to, packet, sizeof packet, NULL);
}

void tt__rpc_give_credit(tt_rpc *rpc, tt__rpc_peer *peer, size_t size) {
    uint32_t cost = request_cost(size);
    peer->window_in -= cost < peer->window_in ? cost : peer->window_in;
    peer->credit += cost;
    if (peer->credit >= TT__RPC_WINDOW / 4 && !peer->lost && peer->id != rpc->id)
        tt_ignore(tt__rpc_send_header(rpc, peer->id, (tt__rpc_header){.kind = TT__RPC_CREDIT}));
}

/* ---- parts */

tt_status tt__transfer_make(tt__rpc_transfer *transfer, uint32_t count) {
    *transfer = (tt__rpc_transfer){.count = count, .due = transfer->due};
    if (count && !(transfer->messages = calloc(count, sizeof *transfer->messages)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %u parts of a call", count);
    return TT_OK;
}

void tt__transfer_part(tt__rpc_transfer *transfer, uint32_t i, int peer, uint32_t id, bool reply, const void *data,
                       size_t bytes) {
    transfer->messages[i] = (tt__message){.key = {.group = TT__RPC_GROUP, .seq = id, .step = 2 * i + reply},
                                          .peer = peer,
                                          .data = (void *)(uintptr_t)data,
                                          .bytes = bytes,
                                          .asked_for = true,
                                          .pending = &transfer->pending};
}

void tt__transfer_begin(tt_rpc *rpc, tt__rpc_transfer *transfer, bool receive) {
    transfer->pending = transfer->count;
    transfer->listed = true;
    transfer->next = rpc->transfers;
    rpc->transfers = transfer;
    transfer->begins = true;
    for (uint32_t i = 0; i < transfer->count; i++)
        if (receive)
            tt__message_recv(rpc->network->messages, &transfer->messages[i]);
        else
            tt__message_send(rpc->network->messages, &transfer->messages[i]);
    transfer->begins = false;
    if (transfer->cancelled)
        tt__transfer_cancel(rpc, transfer, transfer->cancelled);
}

void tt__transfer_cancel(tt_rpc *rpc, tt__rpc_transfer *transfer, tt_status status) {
    if (transfer->begins)
        transfer->cancelled = status;
    for (uint32_t i = 0; i < transfer->count && transfer->listed && !transfer->begins; i++)
        tt__message_cancel(rpc->network->messages, &transfer->messages[i], status);
}

void tt__transfer_forget(tt_rpc *rpc, int to, const tt__rpc_transfer *transfer) {
    tt__rpc_waiting *waiting = rpc->peers[to] && transfer->count ? rpc->peers[to]->waiting : NULL;
    for (; waiting; waiting = waiting->next)
        if (waiting->transfer == transfer)
            waiting->transfer = NULL;
}

void tt__transfer_end(tt_rpc *rpc, tt__rpc_transfer *transfer) {
    tt__transfer_cancel(rpc, transfer, TT_ERR_ABORTED);
    if (transfer->listed)
        unlist(rpc, transfer);
    free(transfer->messages);
    transfer->messages = NULL;
    transfer->count = 0;
}

tt_status tt__transfer_status(const tt__rpc_transfer *transfer) {
    for (uint32_t i = 0; i < transfer->count; i++)
        if (transfer->messages[i].status)
            return transfer->messages[i].status;
    return TT_OK;
}

void tt__transfers_look(tt_rpc *rpc) {
    for (tt__rpc_transfer **at = &rpc->transfers; *at;) {
        tt__rpc_transfer *transfer = *at;
        if (atomic_load_explicit(&transfer->pending, memory_order_acquire)) {
            at = &transfer->next;
            continue;
        }
        *at = transfer->next;
        transfer->listed = false;
        if (transfer->due)
            tt__rpc_due_add(rpc, transfer->due);
    }
}
