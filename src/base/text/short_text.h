/* Texts that may be too long: the cause often stands at the end, so that something before it is left out. */
#ifndef TT_BASE_SHORT_TEXT_H
#define TT_BASE_SHORT_TEXT_H

#include <tutti/base.h>

#include <stdarg.h>
#include <stddef.h>

/* Write a formatted text, of which at most size - 1 bytes are kept; size is at least 512. Of a longer one the end is
 * kept, and before it, with a mark between, the first words; of a quoted line, which begins with spaces and perhaps a
 * bar, only these. Without memory the end is cut off. */
void tt__format_short(char *text, size_t size, const char *format, va_list args) TT_PRINTF(3, 0);

#endif
