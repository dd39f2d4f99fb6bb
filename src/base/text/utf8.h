/* UTF-8 as RFC 3629 has it. */
#ifndef TT_BASE_UTF8_H
#define TT_BASE_UTF8_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>

/* Is the text UTF-8: no overlong forms, no surrogates, nothing above 10FFFF? */
TT__EXPORT bool tt__is_utf8(const char *text);

/* How many bytes has the character that `text` begins with? 0: it begins with none. */
TT__EXPORT size_t tt__utf8_length(const char *text);

/* Is all of `text` the beginning of a character whose end was cut off? */
bool tt__utf8_is_cut_off(const char *text);

#endif
