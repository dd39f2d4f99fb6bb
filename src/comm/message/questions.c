/* Questions about calls, and answers. */
#include "comm/message/outgoing.h"
#include "comm/message/side_frames.h"

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
