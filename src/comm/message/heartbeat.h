/* Heartbeats between ranks that a TCP link joins. */
#ifndef TT_COMM_MESSAGE_HEARTBEAT_H
#define TT_COMM_MESSAGE_HEARTBEAT_H

#include "comm/message/state.h"

/* Send beats if they are due; returns when the next are. */
int64_t tt__beats_send(tt__messages *messages, int64_t now_ms);

/* Handle a beat that has arrived. */
void tt__on_beat(tt__link *link, const tt__beat *beat);

/* Accuse no peer of silence while this process itself was stopped: it has read nothing meanwhile. */
void tt__beats_check_clock(tt__messages *messages, int64_t now_ms);

#endif
