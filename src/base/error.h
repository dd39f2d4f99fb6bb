/* The last error of each thread: how every layer records it, puts it aside for a while, and writes it for the launcher.
 */
#ifndef TT_BASE_ERROR_H
#define TT_BASE_ERROR_H

#include "base/export.h"
#include "base/log.h"

enum { TT__ERROR_TEXT_SIZE = 2048, TT__PROBLEM_TEXT_SIZE = 1600 };

/* Return early from a function that returns tt_status. */
#define TT__TRY(call)               \
    do {                            \
        tt_status tt_try_ = (call); \
        if (tt_try_)                \
            return tt_try_;         \
    } while (0)

/* Record `status` with a formatted text, and return `status`. A text that is too long is shortened in its middle, with
 * a mark. The text says what was expected, what came, and what to do. */
TT__EXPORT tt_status tt__fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* The same, for functions that return a pointer: `return tt__fail_null(TT_ERR_SHAPE, ...)`. */
TT__EXPORT void *tt__fail_null(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* Fail because NULL was given. A recorded error stays, and its status is returned: usually the call that could not make
 * the argument has recorded it. If there is none, record TT_ERR_INVALID with the text. */
TT__EXPORT tt_status tt__fail_argument(const char *format, ...) TT_PRINTF(1, 2);

/* Put "PREFIX: " before the recorded text, for a caller that knows more (a path, a parameter's name). Returns the
 * recorded status. */
TT__EXPORT tt_status tt__fail_prefix(const char *format, ...) TT_PRINTF(1, 2);

/* Record that a system call failed: append strerror(errnum). ENOMEM becomes TT_ERR_MEMORY. */
TT__EXPORT tt_status tt__fail_errno(tt_status status, int errnum, const char *format, ...) TT_PRINTF(3, 4);

/* Mark the recorded error as one that every rank of the job finds by itself, before the ranks meet: tt_report() prints
 * it in rank 0 alone. Returns its status. */
tt_status tt__fail_alike(void);

/* Return how many errors this thread has recorded. */
TT__EXPORT uint64_t tt__error_count(void);

/* Record that a function of the program failed with `status`. If that function recorded an error, since
 * tt__error_count() was `before`, put "PREFIX: " before its text; else before the status's own text. Returns
 * `status`. */
TT__EXPORT tt_status tt__fail_callback(uint64_t before, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* Write "; the last error before: TEXT" into `out`, for an error that the recorded one may have caused; "" if none is
 * recorded. If the recorded text quotes another error in this way, quote that one: it came first. Returns out. */
TT__EXPORT const char *tt__error_quote(char *out, size_t size);

/* Forget the recorded error. tt_clear_error(), which the program calls, also settles errors that were kept elsewhere;
 * this does not. */
void tt__error_drop(void);

/* Return how often this thread has called tt_clear_error(): errors that were kept before the last call are settled. */
TT__EXPORT unsigned tt__error_clearings(void);

/* ---- the last error, put aside while code runs that may record errors of its own ---- */

typedef struct tt__saved_error {
    tt_status status;
    bool alike; /* tt__fail_alike() */
    char text[TT__ERROR_TEXT_SIZE];
    const struct tt__saved_error *outer; /* tt__error_save_reason() */
} tt__saved_error;

/* Save the last error and clear it. */
TT__EXPORT void tt__error_save(tt__saved_error *saved);

/* Make the saved error the last one again, whatever was recorded since. */
TT__EXPORT void tt__error_restore(const tt__saved_error *saved);

/* The same pair, around a release in which other ranks take part. In between, tt__error_reason() returns the saved
 * error, which the other ranks are told as the reason. Pairs may nest: the outermost error counts. */
TT__EXPORT void tt__error_save_reason(tt__saved_error *saved);
TT__EXPORT void tt__error_restore_reason(const tt__saved_error *saved);

/* Return the error because of which this thread releases something, else its last error; "" and TT_OK: there is none.
 * The text stays until this thread records an error or restores one. */
const char *tt__error_reason(tt_status *status);

/* ---- several problems in one error ---- */

/* Zeroed = none. */
typedef struct tt__problem_list {
    tt_status first;     /* status of the first */
    size_t count, shown; /* how many there are, and how many the text has room for */
    size_t used;
    char text[TT__PROBLEM_TEXT_SIZE];
} tt__problem_list;

TT__EXPORT void tt__problem_add(tt__problem_list *list, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* Record "WHO: first; second; and 3 more" and return the first one's status; TT_OK if there is none. */
TT__EXPORT tt_status tt__problems_report(const tt__problem_list *list, const char *who);

/* ---- the report for the launcher ---- */

/* Write a report in torchelastic's format to the file that $TORCHELASTIC_ERROR_FILE names, if it is set. A report that
 * is there is replaced only by one that says more about why this process ends. `secondary`: this process ends because
 * another one did; launchers never report that as the first failure. Never fails: a file that can't be written is
 * logged. */
void tt__error_file_write(const char *message, bool secondary);

/* From now on, hand this process's reports to `take` instead of writing them; any thread may call `take`. For children
 * of tt_spawn(). */
void tt__error_file_divert(void (*take)(const char *message, bool secondary));

#endif
