/* The thread's last error, put aside: for code that must neither lose it nor mistake it for one of its own. */
#ifndef TT_BASE_SAVED_ERROR_H
#define TT_BASE_SAVED_ERROR_H

#include "base/error.h"

typedef struct tt__saved_error {
    tt_status status;
    char text[TT__ERROR_TEXT_SIZE];
} tt__saved_error;

/* Move the last error to `saved`; the thread has none then. */
void tt__error_save(tt__saved_error *saved);

/* It is the last error again, whatever was recorded since. */
void tt__error_restore(const tt__saved_error *saved);

#endif
