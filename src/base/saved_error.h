/* The thread's last error, put aside while code runs that may record errors of its own. */
#ifndef TT_BASE_SAVED_ERROR_H
#define TT_BASE_SAVED_ERROR_H

#include "base/export.h"

#include "base/error.h"

typedef struct tt__saved_error {
    tt_status status;
    bool alike; /* tt__fail_alike() */
    char text[TT__ERROR_TEXT_SIZE];
    const struct tt__saved_error *outer; /* tt__error_save_reason() */
} tt__saved_error;

/* Save the last error and clear it. */
TT__EXPORT void tt__error_save(tt__saved_error *saved);

/* Make it the last error again, whatever was recorded since. */
TT__EXPORT void tt__error_restore(const tt__saved_error *saved);

/* The same pair around the release of what other ranks have a part in: they are told the error, as why it is released
 * (tt__error_reason()). Each needs the other; of nested pairs the outermost error counts. */
TT__EXPORT void tt__error_save_reason(tt__saved_error *saved);
TT__EXPORT void tt__error_restore_reason(const tt__saved_error *saved);

/* Return the error for which this thread releases something, or else its last error, with its status; "" and TT_OK:
 * there is none. The text stays until this thread records an error or restores one. */
const char *tt__error_reason(tt_status *status);

#endif
