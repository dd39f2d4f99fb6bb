/* Reading frames. */
#ifndef TT_COMM_MESSAGE_INCOMING_H
#define TT_COMM_MESSAGE_INCOMING_H

#include "comm/message/state.h"

/* Read what has come and act on it. Returns whether anything has. */
bool tt__link_read(tt__link *link);

#endif
