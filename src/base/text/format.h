/* Formatted texts: with numbers as the C locale writes them, and short ones. A program may set a locale whose decimal
 * point is not ".", and texts that ranks compare, files keep or other programs read must not depend on it. So all texts
 * with floats are made here (tools/lint.py checks it), and read by base/text/parse.h. */
#ifndef TT_BASE_FORMAT_H
#define TT_BASE_FORMAT_H

#include "base/export.h"

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* snprintf(), vsnprintf(), fprintf() and vasprintf() of the C locale. */
TT__EXPORT int tt__format(char *text, size_t size, const char *format, ...) TT_PRINTF(3, 4);
TT__EXPORT int tt__vformat(char *text, size_t size, const char *format, va_list args) TT_PRINTF(3, 0);
TT__EXPORT int tt__print(FILE *file, const char *format, ...) TT_PRINTF(2, 3);
TT__EXPORT int tt__vformat_new(char **text, const char *format, va_list args) TT_PRINTF(2, 0);

/* Write a number with the fewest digits, at least `digits`, from which reading gives the same number back. Returns as
 * snprintf(). */
TT__EXPORT int tt__format_shortest(char *text, size_t size, int digits, double x);

/* Between these calls this thread, and no other, has the C locale: for calls of libraries that use the locale. Hand
 * what the first returns to the second. */
TT__EXPORT locale_t tt__c_locale_begin(void);
TT__EXPORT void tt__c_locale_end(locale_t before);

/* Write a formatted text, shortened to `size` - 1 bytes; size is at least 512. The end often tells the cause, so the
 * middle is left out, with a mark. Of a quoted line, which begins with spaces and perhaps a bar, only these and the end
 * stay. If memory is out, the end is cut off. */
void tt__format_short(char *text, size_t size, const char *format, va_list args) TT_PRINTF(3, 0);

#endif
