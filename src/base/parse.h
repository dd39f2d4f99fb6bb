/* Strict parsing of numbers from flags, environment variables and addresses. */
#ifndef TT_BASE_PARSE_H
#define TT_BASE_PARSE_H

#include <tutti/base.h>

/* `text` as a whole decimal number in min..max. `what` names it in the error: "RANK", "--nproc-per-node". NULL or
 * empty: TT_ERR_INVALID too. */
tt_status tt__parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* A finite decimal number. */
tt_status tt__parse_f64(const char *what, const char *text, double *value);

#endif
