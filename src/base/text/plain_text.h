/* Text of other processes and files, made fit for terminals, error messages and readers of UTF-8. */
#ifndef TT_BASE_PLAIN_TEXT_H
#define TT_BASE_PLAIN_TEXT_H

#include "base/export.h"

#include <stdbool.h>

/* Is the text UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above 10FFFF? */
TT__EXPORT bool tt__is_utf8(const char *text);

/* Make `text` UTF-8 without control characters except line ends and tabs, in place: each other byte becomes '?'. A
 * character that is cut off at the text's end is removed. Returns `text`. */
char *tt__make_readable(char *text);

/* The same, and remove what a terminal would act upon: escape sequences go as a whole. Returns `text`. */
char *tt__make_plain(char *text);

/* The same for a name, which stands in a line: its line ends and tabs become spaces. */
TT__EXPORT char *tt__make_plain_name(char *name);

typedef struct tt__printable {
    char text[104];
} tt__printable;

/* Make `text`, such as a name in a file, fit for an error message: at most 100 bytes of UTF-8, then "..." if there are
 * more; control characters, and bytes that are no UTF-8, become '?'. */
TT__EXPORT tt__printable tt__make_printable(const char *text);

#endif
