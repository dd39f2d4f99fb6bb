/* Names that come from files, which anyone may have written, in error messages. */
#ifndef TT_BASE_PRINTABLE_H
#define TT_BASE_PRINTABLE_H

#include "base/text/utf8.h"

#include <string.h>

typedef struct tt__printable {
    char text[104];
} tt__printable;

/* Does a terminal act upon this character, of `length` bytes? Those of U+0080 to U+009F are control characters, too. */
static inline bool tt__is_control(const char *c, size_t length) {
    const unsigned char *u = (const unsigned char *)c;
    return u[0] < 0x20 || u[0] == 0x7f || (length == 2 && u[0] == 0xc2 && u[1] < 0xa0);
}

/* Make `text` fit for an error message: at most 100 bytes of UTF-8; control characters, and bytes that are no UTF-8,
 * are replaced. */
static inline tt__printable tt__make_printable(const char *text) {
    tt__printable p;
    size_t n = 0;
    for (size_t length; *text; text += length ? length : 1) {
        length = tt__utf8_length(text);
        bool good = length && !tt__is_control(text, length);
        size_t bytes = good ? length : 1;
        if (n + bytes > 100)
            break;
        memcpy(p.text + n, good ? text : "?", bytes);
        n += bytes;
    }
    memcpy(p.text + n, *text ? "..." : "", *text ? 4 : 1);
    return p;
}

#endif
