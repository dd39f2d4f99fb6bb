/* Packets: frames that are passed to a receiver (tt__packet_taker) in order. */
#include "base/error.h"
#include "comm/message/link.h"
#include "comm/message/links.h"
#include "comm/message/outgoing.h"
#include "comm/message/side_frames.h"

void tt__messages_take_packets(tt__messages *messages, const tt__packet_taker *taker, void *user) {
    for (tt__link *link = messages->active; link; link = link->next) {
        if (link->packet && !link->ended) {
            tt__stream_let_go(&link->transport.stream);
            link->into = NULL;
        }
        tt__packet_is_lost(link);
    }
    messages->packet_taker = taker;
    messages->packet_user = user;
}

void *tt__packet_room(tt__link *link, size_t bytes) {
    const tt__packet_taker *taker = link->messages->packet_taker;
    return link->packet = taker ? taker->room(link->messages->packet_user, link->peer, bytes) : NULL;
}

void tt__packet_has_come(tt__link *link) {
    void *packet = link->packet;
    link->packet = NULL;
    if (packet)
        link->messages->packet_taker->take(link->messages->packet_user, link->peer, packet, (size_t)link->frame.bytes);
}

static tt_status fail_ended_link(const tt__link *link) {
    return tt__fail(link->status, "the connection to rank %d ended: %s", link->peer, link->why);
}

tt_status tt__packet_send(tt__messages *messages, int peer, const void *data, size_t bytes) {
    tt__link *link = tt__link_to(messages, peer);
    tt__frame frame = {.type = TT__FRAME_PACKET, .bytes = bytes};
    if (!link)
        return tt_last_status();
    if (link->ended)
        return fail_ended_link(link);
    tt__send_frame(link, &frame, data, bytes);
    return link->ended ? fail_ended_link(link) : TT_OK;
}

size_t tt__unsent_bytes(const tt__messages *messages, int peer) {
    const tt__link *link = messages->links[peer];
    return link && !link->ended ? link->out.size - link->out_at : 0;
}
