/* What incoming frames mean. */
#ifndef TT_COMM_MESSAGE_ON_FRAME_H
#define TT_COMM_MESSAGE_ON_FRAME_H

#include "comm/message/state.h"

/* The header in link->frame has come. Sets link->into and what else the payload needs; false: the link was ended. */
bool tt__on_frame_header(tt__link *link);

/* Its payload has come, too. */
void tt__on_frame(tt__link *link);

#endif
