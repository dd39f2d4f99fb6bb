/* JSON, read where it lies: nothing is allocated, and what a server sends costs no more memory than its text. Values
 * are spans of the text; look at those of a text that tt__json_size() has found whole. */
#ifndef TT_STORE_JSON_SCAN_H
#define TT_STORE_JSON_SCAN_H

#include "base/bytes.h"

/* The bytes of the value that the text begins with, white space before it included. 0: none, or not all of it, or it is
 * nested deeper than 32. */
size_t tt__json_size(tt__span text);

/* *value := the object's member of this name, the first if there are several; false: there is none, or `object` is not
 * an object. Names are compared as written, without escapes. */
bool tt__json_member(tt__span object, const char *name, tt__span *value);

/* Take the next of an array's items off *rest, which begins as the array. False: there is none left, or it never was an
 * array. */
bool tt__json_item(tt__span *rest, tt__span *item);

/* A string's text, between its quotes, as written; false: no string. */
bool tt__json_string(tt__span value, tt__span *text);

/* The same with escapes resolved, printable, cut to `size`, NUL included. */
bool tt__json_text(tt__span value, char *text, size_t size);

/* A whole number, also one in quotes, as protocol buffers write those of 64 bits. */
bool tt__json_i64(tt__span value, int64_t *number);

/* Is it `true`? */
bool tt__json_is_true(tt__span value);

#endif
