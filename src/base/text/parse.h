/* Strict parsing of numbers from flags, environment variables and addresses, whatever the locale
 * (base/text/format.h writes them); endings of file names. */
#ifndef TT_BASE_PARSE_H
#define TT_BASE_PARSE_H

#include "base/export.h"

#include <stdbool.h>
#include <string.h>

/* Parse `text` as a whole decimal number in min..max. `what` names it in the error: "RANK", "--nproc-per-node". NULL or
 * empty: TT_ERR_INVALID too. */
TT__EXPORT tt_status tt__parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* Parse `text` as a finite number, as the C locale writes it. */
TT__EXPORT tt_status tt__parse_f64(const char *what, const char *text, double *value);

/* Read a text that is one number, as the C locale writes it; false: it isn't. It may be "nan" or "inf", and white space
 * may come before it. A number that is too large becomes an infinity. */
TT__EXPORT bool tt__read_f64(const char *text, double *value);

/* Are the texts equal, ignoring the case of ASCII letters? (strcasecmp() depends on the locale.) */
static inline bool tt__equal_ignoring_case(const char *a, const char *b) {
    for (;; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a - 'A' + 'a') : *a;
        char y = *b >= 'A' && *b <= 'Z' ? (char)(*b - 'A' + 'a') : *b;
        if (x != y || !x)
            return x == y;
    }
}

/* Does `name` end with `ending`, after at least one other character? */
static inline bool tt__ends_with(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && !strcmp(name + n - m, ending);
}

#endif
