/* Writing frames. */
#ifndef TT_COMM_MESSAGE_OUTGOING_H
#define TT_COMM_MESSAGE_OUTGOING_H

#include "comm/message/state.h"

/* Send a frame whose payload is `bytes` at `body`: now or, what the link does not take, later. */
void tt__send_frame(tt__link *link, tt__frame *frame, const void *body, size_t bytes);

/* Send a frame without payload together with whatever is written next. */
void tt__queue_frame(tt__link *link, tt__frame *frame);

/* Write what waits to be written. Returns whether anything was. */
bool tt__link_flush(tt__link *link);

/* Does something wait to be written? */
bool tt__link_wants_write(const tt__link *link);

/* Send the data of `message`, for which receive `receive_id` is ready. */
void tt__begin_sending(tt__link *link, tt__message *message, uint32_t receive_id);

/* Take a message out of `sending`, however much of it was written. */
void tt__stop_sending(tt__link *link, tt__message *message);

/* Refuse the peer's message `other` (0: unknown): it will not be transferred. */
void tt__refuse(tt__link *link, int flags, const tt__message *own, uint32_t other);

/* Give `bytes` of an eager message back to the sender's window. */
void tt__give_credit(tt__link *link, uint64_t bytes);

#endif
