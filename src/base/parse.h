/* Strict parsing of numbers from flags, environment variables and addresses; endings of file names. */
#ifndef TT_BASE_PARSE_H
#define TT_BASE_PARSE_H

#include "base/export.h"

#include <stdbool.h>
#include <string.h>

/* Parse `text` as a whole decimal number in min..max. `what` names it in the error: "RANK", "--nproc-per-node". NULL or
 * empty: TT_ERR_INVALID too. */
TT__EXPORT tt_status tt__parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* Parse a finite decimal number. */
TT__EXPORT tt_status tt__parse_f64(const char *what, const char *text, double *value);

/* Does `name` end with `ending`, and begin with something else? */
static inline bool tt__ends_with(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && !strcmp(name + n - m, ending);
}

#endif
