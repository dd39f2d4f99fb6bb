/* Strict parsing of numbers from flags, environment variables and addresses. */
#ifndef TT_BASE_PARSE_H
#define TT_BASE_PARSE_H

#include <tutti/base.h>

/* Parse all of `text` as a decimal number in min..max. `what` names it in the error: "RANK", "--nproc-per-node".
 * NULL and empty are TT_ERR_INVALID, too. */
tt_status tt__parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* Parse a finite decimal number. */
tt_status tt__parse_f64(const char *what, const char *text, double *value);

#endif
