/* UTF-8 as RFC 3629 has it. */
#ifndef TT_CHECKPOINT_UTF8_H
#define TT_CHECKPOINT_UTF8_H

#include <stdbool.h>

/* Is the text UTF-8: no overlong forms, no surrogates, nothing above 10FFFF? */
bool tt__is_utf8(const char *text);

#endif
