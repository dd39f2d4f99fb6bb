/* Frames beside messages: news of groups (who left, failed or aborted one), questions about calls and their answers,
 * packets for a receiver (tt__packet_taker). */
#include "base/error.h"
#include "comm/message/message_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tt__on_question(tt__link *link) {
    const tt__messages_config *config = &link->messages->config;
    char text[TT__CONTROL_MAX] = "";
    tt__frame answer = {.type = TT__FRAME_ANSWER, .id = link->frame.id};
    const tt__key *key = &link->frame.key;
    bool known = key->seq ? config->call_text && config->call_text(config->world, key->group, key->seq, text,
                                                                   sizeof text, &answer.key.word)
                          : config->record_text &&
                                config->record_text(config->world, key->group, key->record, text, sizeof text);
    bool may_call = key->seq && config->may_call && config->may_call(config->world, key->group);
    answer.flags = (uint8_t)((known ? TT__ANSWER_KNOWN : 0) | (may_call ? TT__ANSWER_MAY_CALL : 0));
    answer.bytes = strlen(text);
    tt__send_frame(link, &answer, text, (size_t)answer.bytes);
}

void tt__on_answer(tt__link *link, size_t bytes) {
    for (tt__question *q = link->messages->questions; q; q = q->next) {
        if (q->id != link->frame.id)
            continue;
        q->answered = true;
        q->known = link->frame.flags & TT__ANSWER_KNOWN;
        q->may_call = link->frame.flags & TT__ANSWER_MAY_CALL;
        q->word = link->frame.key.word;
        memcpy(q->text, link->control, bytes);
        q->text[bytes] = '\0';
    }
}

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

enum { NEWS_MAX = 4096 }; /* groups of which the news of one peer are kept */

void tt__news_send(tt__messages *messages, uint32_t group, const int *ranks, int count, tt__news news, tt_status status,
                   uint32_t seq, const char *text) {
    unsigned char body[TT__CONTROL_MAX];
    const tt__news_body head = {group, seq, news, status};
    size_t length = strnlen(text, sizeof body - sizeof head);
    memcpy(body, &head, sizeof head);
    memcpy(body + sizeof head, text, length);
    for (int i = 0; i < count; i++) {
        tt__link *link = messages->links[ranks[i]];
        tt__frame frame = {.type = TT__FRAME_NEWS, .bytes = sizeof head + length};
        if (link && link->tcp && !link->ended)
            tt__send_frame(link, &frame, body, sizeof head + length);
    }
}

static tt__received_news *find_news(tt__link *link, uint32_t group) {
    tt__received_news *n = link->news;
    while (n && n->body.group != group)
        n = n->next;
    return n;
}

/* Drop the oldest, at the list's end, since groups come and go. */
static void drop_oldest_news(tt__link *link) {
    tt__received_news **at = &link->news;
    for (int kept = 1; *at && kept < NEWS_MAX; kept++)
        at = &(*at)->next;
    tt__news_free(*at);
    *at = NULL;
}

/* Keep the first news of a group: a rank that failed and then left has failed. */
void tt__on_news(tt__link *link, const void *body, size_t bytes) {
    tt__news_body head;
    memcpy(&head, body, sizeof head);
    if (find_news(link, head.group))
        return;
    drop_oldest_news(link);
    size_t length = bytes - sizeof head;
    tt__received_news *received = malloc(sizeof *received + length + 1);
    if (!received)
        return;
    received->next = link->news;
    received->body = head;
    memcpy(received->text, (const char *)body + sizeof head, length);
    received->text[length] = '\0';
    link->news = received;
}

bool tt__news_of(tt__messages *messages, int rank, uint32_t group, tt__news *news, tt_status *status, uint32_t *seq,
                 char *text, size_t size) {
    tt__link *link = messages->links[rank];
    const tt__received_news *received = link && link->tcp ? find_news(link, group) : NULL;
    if (!received)
        return false;
    *news = (tt__news)received->body.news;
    *status = (tt_status)received->body.status;
    *seq = received->body.seq;
    snprintf(text, size, "%s", received->text);
    return true;
}
