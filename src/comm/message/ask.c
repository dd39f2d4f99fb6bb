/* Asking a peer, and waiting for its answer. */
#include "base/machine/clock.h"
#include "comm/message/outgoing.h"

#include <stdio.h>

/* Ask, and wait for the answer at most `ms`. */
static tt__question ask_peer(tt__messages *messages, int rank, const tt__key *key, int64_t ms) {
    tt__link *link = messages->links[rank];
    int64_t deadline_ms = tt__deadline_ms(ms);
    tt__question question = {.next = messages->questions, .id = ++messages->last_id};
    tt__frame frame = {.type = TT__FRAME_ASK, .key = *key, .id = question.id};
    if (!link || !link->tcp || link->ended)
        return question;
    messages->questions = &question;
    tt__send_frame(link, &frame, NULL, 0);
    while (!question.answered && !link->ended && tt__left_ms(deadline_ms))
        tt__messages_wait(messages, tt__left_ms(deadline_ms));
    tt__question **at = &messages->questions;
    while (*at != &question)
        at = &(*at)->next;
    *at = question.next;
    return question;
}

bool tt__ask_call(tt__messages *messages, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms) {
    tt__question question = ask_peer(messages, rank, &(tt__key){.group = group, .seq = seq}, ms);
    if (!question.known)
        return false;
    snprintf(text, size, "%s", question.text);
    *word = question.word;
    return true;
}

bool tt__ask_not_called(tt__messages *messages, int rank, uint32_t group, uint32_t seq, int64_t ms) {
    tt__question question = ask_peer(messages, rank, &(tt__key){.group = group, .seq = seq}, ms);
    return question.answered && !question.known && !question.may_call;
}

bool tt__ask_record(tt__messages *messages, int rank, uint32_t group, uint32_t record, char *text, size_t size,
                    int64_t ms) {
    tt__question question = ask_peer(messages, rank, &(tt__key){.group = group, .record = record}, ms);
    if (question.known)
        snprintf(text, size, "%s", question.text);
    return question.known;
}
