/* Asking a peer, and waiting for its answer. */
#include "base/clock.h"
#include "comm/message/outgoing.h"

#include <stdio.h>

static bool ask_peer(tt__messages *messages, int rank, const tt__key *key, char *text, size_t size, uint32_t *word,
                     int64_t ms) {
    tt__link *link = messages->links[rank];
    int64_t deadline_ms = tt__deadline_ms(ms);
    if (!link || !link->tcp || link->ended)
        return false;
    tt__question question = {.next = messages->questions, .id = ++messages->last_id};
    tt__frame frame = {.type = TT__FRAME_ASK, .key = *key, .id = question.id};
    messages->questions = &question;
    tt__send_frame(link, &frame, NULL, 0);
    while (!question.answered && !link->ended && tt__left_ms(deadline_ms))
        tt__messages_wait(messages, tt__left_ms(deadline_ms));
    tt__question **at = &messages->questions;
    while (*at != &question)
        at = &(*at)->next;
    *at = question.next;
    if (!question.known)
        return false;
    snprintf(text, size, "%s", question.text);
    *word = question.word;
    return true;
}

bool tt__ask_call(tt__messages *messages, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms) {
    return ask_peer(messages, rank, &(tt__key){.group = group, .seq = seq}, text, size, word, ms);
}

bool tt__ask_record(tt__messages *messages, int rank, uint32_t group, uint32_t record, char *text, size_t size,
                    int64_t ms) {
    uint32_t word;
    return ask_peer(messages, rank, &(tt__key){.group = group, .record = record}, text, size, &word, ms);
}
