/* Groups that have ended here; message.h has the calls by which comm reports them. */
#ifndef TT_COMM_MESSAGE_ENDED_GROUPS_H
#define TT_COMM_MESSAGE_ENDED_GROUPS_H

#include "comm/message/state.h"

/* Has the group ended here? Messages for it are dropped then. */
bool tt__messages_have_ended(const tt__messages *messages, uint32_t group);

#endif
