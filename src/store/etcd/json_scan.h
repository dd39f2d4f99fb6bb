/* JSON, read in place: nothing is allocated, so a server's answer costs no more memory than its text. Values are spans
 * of a text that tt__json_size() has found whole. */
#ifndef TT_STORE_JSON_SCAN_H
#define TT_STORE_JSON_SCAN_H

#include "base/bytes.h"

/* Return the bytes of the value that the text begins with, and of white space before it. 0: there is no whole value, or
 * it is nested deeper than 32. */
size_t tt__json_size(tt__span text);

/* Find the object's first member of this name; false: there is none, or `object` is no object. Names are compared as
 * written, without resolving escapes. */
bool tt__json_member(tt__span object, const char *name, tt__span *value);

/* Take the next item off *rest, which is the array at first. False: no item is left, or it was no array. */
bool tt__json_item(tt__span *rest, tt__span *item);

/* Find a string's text, between its quotes, as written; false: `value` is no string. */
bool tt__json_string(tt__span value, tt__span *text);

/* Copy a string with escapes resolved, made printable, and cut to `size` bytes with the NUL. */
bool tt__json_text(tt__span value, char *text, size_t size);

/* Read a whole number, also one in quotes, as protocol buffers write numbers of 64 bits. */
bool tt__json_i64(tt__span value, int64_t *number);

/* Is the value `true`? */
bool tt__json_is_true(tt__span value);

#endif
