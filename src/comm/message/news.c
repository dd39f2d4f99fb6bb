/* News of groups. */
#include "comm/message/link.h"
#include "comm/message/outgoing.h"
#include "comm/message/side_frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
