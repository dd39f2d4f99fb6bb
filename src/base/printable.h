/* Names that come from files, which anyone may have written, in error messages. */
#ifndef TT_BASE_PRINTABLE_H
#define TT_BASE_PRINTABLE_H

#include <string.h>

typedef struct tt__printable {
    char text[104];
} tt__printable;

/* Make `text` fit for an error message: at most 100 bytes, control characters replaced. */
static inline tt__printable tt__make_printable(const char *text) {
    tt__printable p;
    size_t n = 0;
    for (; text[n] && n < 100; n++)
        p.text[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
    memcpy(p.text + n, text[n] ? "..." : "", text[n] ? 4 : 1);
    return p;
}

#endif
