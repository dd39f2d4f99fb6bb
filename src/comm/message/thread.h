/* The engine's own thread. */
#ifndef TT_COMM_MESSAGE_THREAD_H
#define TT_COMM_MESSAGE_THREAD_H

#include "comm/message/state.h"

tt_status tt__messages_thread_start(tt__messages *messages);

/* End the thread and wait for its end; does nothing if there is none. The lock must not be held. */
void tt__messages_thread_stop(tt__messages *messages);

#endif
