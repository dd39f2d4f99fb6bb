#ifndef TT_COMM_MESSAGE_NEWS_H
#define TT_COMM_MESSAGE_NEWS_H

#include "comm/message/state.h"

/* Handle news: `bytes` of tt__news_body and text. */
void tt__on_news(tt__link *link, const void *body, size_t bytes);

/* Answer the question in link->frame. */
void tt__on_question(tt__link *link);

/* Handle the answer in link->frame, whose text is in link->control. */
void tt__on_answer(tt__link *link, size_t bytes);

/* Return memory for a packet of `bytes` that is about to come; NULL: it is dropped. And pass on a packet that has
 * come. */
void *tt__packet_room(tt__link *link, size_t bytes);
void tt__packet_has_come(tt__link *link);

#endif
