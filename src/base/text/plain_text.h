/* Text of other processes, on its way to a terminal or to who reads UTF-8. */
#ifndef TT_BASE_PLAIN_TEXT_H
#define TT_BASE_PLAIN_TEXT_H

#include "base/export.h"

/* Make `text` UTF-8 without control characters but line ends and tabs, in place: each other byte becomes '?', and a
 * character whose end was cut off with the text's goes. Returns `text`. */
char *tt__make_readable(char *text);

/* The same, and without what a terminal would act upon: escape sequences go as a whole. Returns `text`. */
char *tt__make_plain(char *text);

/* The same for a name, which stands in a line: its line ends and tabs become spaces. */
TT__EXPORT char *tt__make_plain_name(char *name);

#endif
