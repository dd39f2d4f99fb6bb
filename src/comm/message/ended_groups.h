/* Groups that have ended here: message.h has what the rest of comm says of them. */
#ifndef TT_COMM_MESSAGE_ENDED_GROUPS_H
#define TT_COMM_MESSAGE_ENDED_GROUPS_H

#include "comm/message/state.h"

/* Has the group ended here? Then what comes for it is dropped. */
bool tt__messages_have_ended(const tt__messages *messages, uint32_t group);

#endif
