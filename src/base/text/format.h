/* Texts of numbers, written as the C locale writes them. A program may have set a locale whose decimal point is a comma
 * or some other character: what ranks compare, files keep and other programs read must not depend on that. All texts
 * with floats are made here (tools/lint.py checks it), and read by base/text/parse.h. */
#ifndef TT_BASE_FORMAT_H
#define TT_BASE_FORMAT_H

#include "base/export.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>

/* snprintf(), vsnprintf(), fprintf() and vasprintf() of the C locale. */
TT__EXPORT int tt__format(char *text, size_t size, const char *format, ...) TT_PRINTF(3, 4);
TT__EXPORT int tt__vformat(char *text, size_t size, const char *format, va_list args) TT_PRINTF(3, 0);
TT__EXPORT int tt__print(FILE *file, const char *format, ...) TT_PRINTF(2, 3);
TT__EXPORT int tt__vformat_new(char **text, const char *format, va_list args) TT_PRINTF(2, 0);

/* Write a number with as few digits, of at least `digits`, as give it back. Returns as snprintf(). */
TT__EXPORT int tt__format_shortest(char *text, size_t size, int digits, double x);

/* Between these calls this thread reads and writes numbers as the C locale does; other threads are not touched. For
 * calls of libraries that ask for the locale. Hand what the first returns to the second. */
TT__EXPORT locale_t tt__c_locale_begin(void);
TT__EXPORT void tt__c_locale_end(locale_t before);

#endif
