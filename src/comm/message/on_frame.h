/* Handling of incoming frames. */
#ifndef TT_COMM_MESSAGE_ON_FRAME_H
#define TT_COMM_MESSAGE_ON_FRAME_H

#include "comm/message/state.h"

/* Handle the header in link->frame, which has arrived: set link->into and what else the payload needs; false: the link
 * was ended. */
bool tt__on_frame_header(tt__link *link);

/* Handle the frame, whose payload has arrived, too. */
void tt__on_frame(tt__link *link);

#endif
