#include "base/text/parse.h"

#include "base/error.h"
#include "base/text/format.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

tt_status tt__parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value) {
    if (!text || !*text)
        return tt__fail(TT_ERR_INVALID, "%s: expected a number from %" PRId64 " to %" PRId64 ", but it is %s", what,
                        min, max, text ? "empty" : "not set");
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (strchr(" \t\n\v\f\r", *text) || *end || errno || n < min || n > max)
        return tt__fail(TT_ERR_INVALID, "%s: expected a number from %" PRId64 " to %" PRId64 ", got \"%.100s\"", what,
                        min, max, text);
    *value = n;
    return TT_OK;
}

bool tt__read_f64(const char *text, double *value) {
    char *end;
    if (!text || !*text)
        return false;
    locale_t before = tt__c_locale_begin();
    *value = strtod(text, &end);
    tt__c_locale_end(before);
    return !*end;
}

tt_status tt__parse_f64(const char *what, const char *text, double *value) {
    double x = 0;
    errno = 0;
    if (!tt__read_f64(text, &x) || strchr(" \t\n\v\f\r", *text) || errno || !isfinite(x))
        return tt__fail(TT_ERR_INVALID, "%s: expected a number, got \"%.100s\"", what, text ? text : "");
    *value = x;
    return TT_OK;
}
