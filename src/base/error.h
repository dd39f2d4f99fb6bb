/* The thread's last error: how every layer records one. */
#ifndef TT_BASE_ERROR_H
#define TT_BASE_ERROR_H

#include <tutti/base.h>

enum { TT__ERROR_TEXT_SIZE = 2048 };

/* Record `status` with a formatted text and return `status`. Longer texts are cut. The text says what was expected,
 * what came, and what to do. */
tt_status tt__fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* The same, for functions that return a pointer: `return tt__fail_null(TT_ERR_SHAPE, ...)`. */
void *tt__fail_null(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* Put "PREFIX: " before the recorded text, for a caller that knows more (a path, a parameter's name). Returns the
 * recorded status. */
tt_status tt__fail_prefix(const char *format, ...) TT_PRINTF(1, 2);

/* Record a failed system call: strerror(errnum) is appended. ENOMEM becomes TT_ERR_MEMORY. */
tt_status tt__fail_errno(tt_status status, int errnum, const char *format, ...) TT_PRINTF(3, 4);

/* Set the rank that tt_report() names; -1 = none. Called by comm. */
void tt__set_report_rank(int rank);

/* Write a torchelastic report to $TORCHELASTIC_ERROR_FILE if that is set and the file is missing or empty.
 * `secondary`: this process ends because another one did; launchers never call such a one the first failure. Best
 * effort, never fails. */
void tt__error_file_write(const char *message, bool secondary);

/* Return early from a function that returns tt_status. */
#define TT__TRY(call)               \
    do {                            \
        tt_status tt_try_ = (call); \
        if (tt_try_)                \
            return tt_try_;         \
    } while (0)

/* Write one log line at `level` through the callback of tt_set_log(). */
void tt__log(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);

#endif
