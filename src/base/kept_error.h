/* The thread's last error, put aside: for code that must neither lose it nor mistake it for one of its own. */
#ifndef TT_BASE_KEPT_ERROR_H
#define TT_BASE_KEPT_ERROR_H

#include "base/error.h"

typedef struct tt__kept_error {
    tt_status status;
    char text[TT__ERROR_TEXT_SIZE];
} tt__kept_error;

/* Move the last error to `kept`; the thread has none then. */
TT__EXPORT void tt__error_keep(tt__kept_error *kept);

/* It is the last error again, whatever was recorded since. */
TT__EXPORT void tt__error_restore(const tt__kept_error *kept);

#endif
