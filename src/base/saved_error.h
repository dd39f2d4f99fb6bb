/* The thread's last error, put aside while code runs that may record errors of its own. */
#ifndef TT_BASE_SAVED_ERROR_H
#define TT_BASE_SAVED_ERROR_H

#include "base/export.h"

#include "base/error.h"

typedef struct tt__saved_error {
    tt_status status;
    bool alike; /* tt__fail_alike() */
    char text[TT__ERROR_TEXT_SIZE];
} tt__saved_error;

/* Save the last error and clear it. */
TT__EXPORT void tt__error_save(tt__saved_error *saved);

/* Make it the last error again, whatever was recorded since. */
TT__EXPORT void tt__error_restore(const tt__saved_error *saved);

#endif
