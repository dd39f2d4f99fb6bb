/* Merging of lines that several ranks write alike: "tutti: rank 0: TEXT" and "tutti: rank 2: TEXT" become "tutti: ranks
 * 0, 2: TEXT". Knows no descriptors. Texts are alike if they agree to the letter, or if each names its own rank in the
 * same places; these become "this rank".
 *
 * Only such lines, which tt_report() writes, are held back, and only for a moment: the caller says when it is over. */
#ifndef TT_LAUNCH_LOCAL_MERGE_H
#define TT_LAUNCH_LOCAL_MERGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tt__merged tt__merged;

typedef struct tt__line_merge {
    tt__merged *first, **end; /* in the order in which they came */
} tt__line_merge;

/* Hold the line (n bytes, with its line end), which writer number `from` wrote. False: it is not of that kind, or there
 * is no memory: pass it on, after what is held of that writer. */
bool tt__merge_hold(tt__line_merge *merge, int from, const char *line, size_t n);

/* Is a line of writer `from` held? Of any writer? */
bool tt__merge_holds(const tt__line_merge *merge, int from);
bool tt__merge_holds_any(const tt__line_merge *merge);

/* Have `writers` ranks written each line that is held? */
bool tt__merge_complete(const tt__line_merge *merge, int writers);

/* Take the next held line as text with its line end, to be freed; *n its length. NULL: there is none. */
char *tt__merge_take(tt__line_merge *merge, size_t *n);

void tt__merge_free(tt__line_merge *merge);

/* Write the text of rank `rank` (n bytes) as other ranks could write it, too: its own number is "this rank". At most
 * `size` bytes with the NUL; returns the length. */
size_t tt__words_of_any(char *out, size_t size, const char *text, size_t n, int rank);

#endif
