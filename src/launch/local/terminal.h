/* Output for people: colour and width of a terminal, and text wrapped to it. */
#ifndef TT_LAUNCH_LOCAL_TERMINAL_H
#define TT_LAUNCH_LOCAL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* May escape sequences be written to `fd`? On a terminal yes, unless NO_COLOR is set or TERM is dumb; elsewhere only if
 * CLICOLOR_FORCE asks. */
bool tt__terminal_colours(int fd);

/* Return the columns of the terminal `fd`; 0: not a terminal. */
int tt__terminal_columns(int fd);

/* Sequences that begin a colour, and the one that ends it. "" where fd shows none: they can be printed anywhere. */
typedef enum tt__colour { TT__PLAIN, TT__BOLD, TT__RED, TT__GREEN, TT__YELLOW, TT__DIM } tt__colour;
const char *tt__terminal_colour(int fd, tt__colour colour);

/* Wrap one line of text, without line end, between words into lines of at most `columns`. The first has `used`
 * columns already; the others begin with `indent` spaces. At most `size` bytes with the NUL; what does not fit is
 * cut. A word that is too long stands alone. Returns the length. columns 0: leave the text as it is. */
size_t tt__wrap(char *out, size_t size, const char *text, int columns, int used, int indent);

#endif
