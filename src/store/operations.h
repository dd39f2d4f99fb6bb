#ifndef TT_STORE_OPERATIONS_H
#define TT_STORE_OPERATIONS_H

#include "store/service.h"

/* Carry out one whole request, which lies at `data`. Replies go to the sessions' `out`. */
void tt__store_execute(tt__store_session *session, const tt__store_parser *request, const uint8_t *data);

#endif
