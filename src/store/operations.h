#ifndef TT_STORE_OPERATIONS_H
#define TT_STORE_OPERATIONS_H

#include "store/service.h"

/* Carry out one whole request, which lies at `data`. Replies go to the sessions' `out`. */
void tt__store_execute(tt__store_session *session, const tt__store_parser *request, const uint8_t *data);

/* Continue a MULTI_GET, which lies at `data`, as far as unsent replies allow: session->gets_left. */
void tt__store_continue_gets(tt__store_session *session, const uint8_t *data);

#endif
