/* Text of other processes, on its way to a terminal. */
#ifndef TT_BASE_PLAIN_TEXT_H
#define TT_BASE_PLAIN_TEXT_H

/* Remove, in place, what a terminal would act upon: escape sequences and control characters, except for line ends and
 * tabs. Returns `text`. */
char *tt__make_plain(char *text);

/* The same for a name, which stands in a line: its line ends and tabs become spaces. */
char *tt__make_plain_name(char *name);

#endif
