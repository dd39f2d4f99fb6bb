/* Frames beside messages and heartbeats: news of groups (news.c), questions and answers (questions.c). */
#ifndef TT_COMM_MESSAGE_SIDE_FRAMES_H
#define TT_COMM_MESSAGE_SIDE_FRAMES_H

#include "comm/message/state.h"

/* `bytes` of tt__news_body and text have come. */
void tt__on_news(tt__link *link, const void *body, size_t bytes);

/* link->frame is a question: answer it. */
void tt__on_question(tt__link *link);

/* link->frame is an answer, whose text is in link->control. */
void tt__on_answer(tt__link *link, size_t bytes);

#endif
