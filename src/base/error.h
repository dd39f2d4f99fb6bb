/* The thread's last error: how every layer records one. */
#ifndef TT_BASE_ERROR_H
#define TT_BASE_ERROR_H

#include "base/export.h"
#include "base/log.h"

enum { TT__ERROR_TEXT_SIZE = 2048 };

/* Record `status` with a formatted text and return `status`. Of longer texts something in the middle is left out,
 * with a mark. The text says what was expected, what came, and what to do. */
TT__EXPORT tt_status tt__fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* The same, for functions that return a pointer: `return tt__fail_null(TT_ERR_SHAPE, ...)`. */
TT__EXPORT void *tt__fail_null(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* Fail because NULL was given. If an error is recorded, it stays, and its status is returned: the call that could not
 * make the argument has usually said why. Else record TT_ERR_INVALID with the text. */
TT__EXPORT tt_status tt__fail_argument(const char *format, ...) TT_PRINTF(1, 2);

/* Put "PREFIX: " before the recorded text, for a caller that knows more (a path, a parameter's name). Returns the
 * recorded status. */
TT__EXPORT tt_status tt__fail_prefix(const char *format, ...) TT_PRINTF(1, 2);

/* Write "; the last error before: TEXT" into `out`, for a text about what may be missing because that call failed; ""
 * if no error is recorded. If the recorded text quotes an error in this way, quote that one: the first cause. Returns
 * out. */
TT__EXPORT const char *tt__error_quote(char *out, size_t size);

/* Mark the recorded error as one that all ranks of the job find alike, before they could meet: tt_report() prints it in
 * rank 0 alone. Returns its status. */
tt_status tt__fail_alike(void);
bool tt__error_is_alike(void);

/* Return how many errors this thread has recorded. */
TT__EXPORT uint64_t tt__error_count(void);

/* Record that a function of the program failed with `status`. If it recorded an error since tt__error_count() was
 * `before`, put "PREFIX: " before that text; else the text is the status's own. Returns `status`. */
TT__EXPORT tt_status tt__fail_callback(uint64_t before, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* Record that a system call failed: append strerror(errnum). ENOMEM becomes TT_ERR_MEMORY. */
TT__EXPORT tt_status tt__fail_errno(tt_status status, int errnum, const char *format, ...) TT_PRINTF(3, 4);

/* Have no last error, as before whatever was recorded. Unlike tt_clear_error(), which the program calls, it settles
 * nothing that was kept. */
void tt__error_drop(void);

/* Return how often this thread has called tt_clear_error(): errors kept from before the last time are settled. */
TT__EXPORT unsigned tt__error_clearings(void);

/* Write a torchelastic report to $TORCHELASTIC_ERROR_FILE if that is set and the file is missing or empty.
 * `secondary`: this process ends because another one did; launchers never report it as the first failure. Best effort,
 * never fails. */
void tt__error_file_write(const char *message, bool secondary);

/* From now on such reports of this process go to `take` instead, from any thread. For children that tt_spawn() made. */
void tt__error_file_divert(void (*take)(const char *message, bool secondary));

/* Return early from a function that returns tt_status. */
#define TT__TRY(call)               \
    do {                            \
        tt_status tt_try_ = (call); \
        if (tt_try_)                \
            return tt_try_;         \
    } while (0)

#endif
