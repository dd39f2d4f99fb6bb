/* UTF-8 as RFC 3629 has it. */
#ifndef TT_BASE_UTF8_H
#define TT_BASE_UTF8_H

#include "base/export.h"

#include <stdbool.h>

/* Is the text UTF-8: no overlong forms, no surrogates, nothing above 10FFFF? */
TT__EXPORT bool tt__is_utf8(const char *text);

#endif
