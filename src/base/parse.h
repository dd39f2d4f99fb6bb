/* Strict parsing of numbers from flags, environment variables and addresses. */
#ifndef TT_BASE_PARSE_H
#define TT_BASE_PARSE_H

#include "base/export.h"

/* `text` as a whole decimal number in min..max. `what` names it in the error: "RANK", "--nproc-per-node". NULL or
 * empty: TT_ERR_INVALID too. */
TT__EXPORT tt_status tt__parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* Parse a finite decimal number. */
tt_status tt__parse_f64(const char *what, const char *text, double *value);

#endif
